"""Reports by day: as kept by the fold or as computed from rows of an earlier build, they are what the intervals are."""

from datetime import timedelta

import psycopg
import pytest

from gpuledger.db.engine import connect
from gpuledger.domain.fact import Fact
from gpuledger.domain.workloads import allocations
from gpuledger.domain.workloads import fold as workloads
from gpuledger.events.allocation import AllocatedDevices, AllocationEnded, AllocationObserved
from gpuledger.events.envelope import Event
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.projection.rows import RowStore
from support.events import hour

HELD = AllocationObserved(
    node="n1",
    namespace="ml",
    pod="p",
    container="main",
    resources=(AllocatedDevices(resource="r", devices=("a", "b::1")),),
)
FACTS = (
    (0, "short", WorkloadSubmitted(gpu_milli=500, owner="ann", workload_class="LS")),
    (22.5, "short", WorkloadScheduled(gpu_milli=500, node="n1")),
    (49, "short", WorkloadEnded()),
    (24, "long", WorkloadScheduled(gpu_milli=2000)),
    (24 * 90 + 1, "long", WorkloadEnded()),
    (30, "long", WorkloadSubmitted(gpu_milli=2000, owner="ann", workload_class="LS")),
    (26, "held", WorkloadScheduled(gpu_milli=250, node="n1")),
    (23, "n1/ml/p/main", HELD),
    (24 * 40, "n1/ml/p/main", HELD.model_copy(update={"resources": ()})),
    (24 * 39, "n1/ml/p/main", AllocationEnded()),
    (50, "n1/ml/q/main", HELD.model_copy(update={"pod": "q"})),
)
OF_INTERVALS = """
SELECT
    (day AT TIME ZONE 'UTC')::date AS day, {names},
    round(
        sum({amount} * extract(epoch FROM least(until, day + interval '24 hours') - greatest(valid_from, day))) / 3600,
        6
    )
FROM (SELECT *, coalesce(valid_to, now()) AS until FROM {view}) AS held
CROSS JOIN LATERAL generate_series(date_trunc('day', valid_from, 'UTC'), until, interval '24 hours') AS of_day (day)
WHERE until > greatest(valid_from, day)
GROUP BY 1, {names}
"""
OF_CONTAINERS = {
    "names": "node, namespace, resource, driver, pool",
    "amount": "1",
    "view": "report.container_allocations",
}
OF_WORKLOADS = {"names": "node, owner, class", "amount": "gpus", "view": "report.allocation"}


@pytest.fixture
async def database(migrated_url: str) -> str:
    states = ((workloads.Workloads(), workloads.HANDLERS), (allocations.Allocations(), allocations.HANDLERS))
    async with connect(migrated_url, application_name="test") as connection:
        for position, (at, subject, data) in enumerate(FACTS, start=1):
            event = Event(str(position), "/test", data.TYPE, subject, hour(at), data, "1", position)
            for state, handlers in states:
                if type(data) in handlers:
                    handlers[type(data)](state, Fact(event, position, 0), data)
        for state, _ in states:
            for table in state.tables().values():
                await RowStore(table.spec, "gpuledger_live").write(connection, table.take_changes())
    return migrated_url


@pytest.mark.parametrize("version", [None, 1], ids=["as kept", "of an earlier build"])
def test_totals_by_day_are_what_the_intervals_add_up_to(database: str, version: int | None) -> None:
    with psycopg.connect(database) as connection:  # in one transaction, so that now is one moment
        if version is not None:
            connection.execute("DELETE FROM gpuledger_live.allocation_day")
            connection.execute("DELETE FROM gpuledger_live.container_allocation_day")
            connection.execute(
                "INSERT INTO gpuledger.projection "
                "(name, edition, version, generation, position, events, incarnation) "
                "SELECT name, 'live', %s, 1, 1, 1, '1' FROM unnest(ARRAY['workloads', 'allocations']) AS name",
                (version,),
            )
        for report, intervals in (("gpu_hours_by_day", OF_WORKLOADS), ("container_hours_by_day", OF_CONTAINERS)):
            found = connection.execute(f"SELECT * FROM report.{report}".encode()).fetchall()
            expected = connection.execute(OF_INTERVALS.format(**intervals).encode()).fetchall()
            assert sorted(found, key=repr) == sorted(expected, key=repr)
            assert len(found) > timedelta(days=90).days or report != "gpu_hours_by_day"
        owners = connection.execute(
            "SELECT owner, class, round(sum(gpu_hours), 3) FROM report.gpu_hours_by_day GROUP BY 1, 2"
        )
        whole = connection.execute("SELECT owner, class, round(gpu_hours, 3) FROM report.gpu_hours")
        assert set(owners.fetchall()) == set(whole.fetchall())
