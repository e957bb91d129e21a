"""Incidents on the command line: what is open, what was, and one of them with its reports and the pods it hit."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from gpuledger.cli.times import format_time
from gpuledger.events.allocation import AllocatedDevices, AllocationObserved
from gpuledger.events.device import DeviceInserted
from gpuledger.events.envelope import Decoded
from support import servers
from support.cli import Cli, next_line, watching
from support.events import event, hour
from support.health import REPORTS_OF_HEALTH, card_report, in_force, reported
from support.ledgers import new_ledger
from support.projections import publish

DEADLINE_S = 60.0
OTHER = "/nodes/n2/agent"
HELD = AllocationObserved(
    node="n1",
    namespace="ml",
    pod="trainer-0",
    container="main",
    resources=(AllocatedDevices(resource="gpu.deckhouse.io/training", devices=("a",)),),
)


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers with reports in the log, and a migrated database."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        asyncio.run(_record(nats.url))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


async def _record(nats_url: str, *more: Decoded) -> None:
    """Record the reports, and more after them; what is there already is not recorded again."""
    held = event(HELD, "n1/ml/trainer-0/main", number=len(REPORTS_OF_HEALTH) + 1, at=7, source="/nodes/n1/agent")
    card = event(DeviceInserted(slot="n1/0", uuid="c"), "c")
    reports = [*reported(*REPORTS_OF_HEALTH), held, card, *reported((91, card_report("c", "48")), source=OTHER)]
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, [in_force(), *reports, *more])


def test_open_incidents_are_listed(cli: Cli) -> None:
    (heading, *lines) = [line.split() for line in cli("incident", "list").out.splitlines()]
    assert heading == ["INCIDENT", "NODE", "CHECK", "ENTITY", "FATAL", "CODES", "OPENED", "ENDED", "REPORTS", "CAUSE"]
    assert [line[1:4] for line in lines] == [
        ["n1", "XID", "a"],
        ["n1", "XID", "b"],
        ["n1", "XID", "c"],
        ["n2", "XID", "c"],
    ]
    names = cli("incident", "list", "-o", "name").out
    assert cli("get", "incidents", "-o", "name").out == names
    assert names.splitlines() == [f"incident/{line[0]}" for line in lines]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--all",), 7),
        (("--since", format_time(hour(9.4))), 5),
        (("--node", "n2"), 1),
        (("--device", "c"), 2),
        (("--device", "a", "--all"), 4),
        (("--at", format_time(hour(8.6))), 1),
        (("--at", format_time(hour(9.1)), "--all"), 1),
        (("--as-recorded", "1/2"), 1),
    ],
)
def test_options_choose_incidents(cli: Cli, options: tuple[str, ...], count: int) -> None:
    rows = cli("incident", "list", *options, "-o", "json").json()
    assert len(rows) == count
    assert cli("get", "incidents", *options, "-o", "json").json() == rows


def test_the_past_has_nothing_of_later(cli: Cli) -> None:
    (row,) = cli("get", "incidents", "--at", format_time(hour(8.3)), "-o", "json").json()
    assert (row["codes"], row["reports"], row["ended_at"]) == ("79", 3, None)
    (ended,) = cli("get", "incidents", row["incident"], "-o", "json").json()
    assert (ended["codes"], ended["reports"], ended["ended_by"]) == ("79,94", 4, "healthy")


def test_one_incident_has_its_reports_and_holders(cli: Cli) -> None:
    (row, *_) = cli("incident", "list", "--all", "--device", "a", "-o", "json").json()
    found = cli("incident", "show", f"incident/{row['incident']}", "-o", "json").json()
    assert [(one["healthy"], one["codes"]) for one in found["timeline"]] == [
        (False, "79"),
        (False, "79"),
        (False, "79,94"),
        (True, ""),
    ]
    assert [one["position"] for one in found["timeline"]] == [2, 6, 3, 4]
    assert [(one["namespace"], one["pod"]) for one in found["holders"]] == [("ml", "trainer-0")]
    page = cli("incident", "show", row["incident"]).out
    assert "Check:        XID" in page
    assert "trainer-0" in page
    assert "fell off the bus" in page


def test_pages_of_devices_and_nodes_have_incidents(cli: Cli) -> None:
    card = cli("describe", "device", "c", "--no-kube").out.partition("Incidents:\n")[2].partition("Allocations")[0]
    assert [line.split()[1:3] for line in card.splitlines()[2:]] == [["XID", "c"], ["XID", "c"]]
    node = cli("describe", "node", "n2", "--no-kube").out.partition("Open incidents:\n")[2].partition("Workloads")[0]
    assert [line.split()[1:3] for line in node.splitlines()[2:]] == [["XID", "c"]]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("incident", "show", "nothing"), 1, "incident 'nothing' was not found"),
        (("incident", "list", "nothing"), 1, "incident 'nothing' was not found"),
        (("incident", "list", "--all", "--since", "-1h"), 2, "--since and --all exclude each other"),
        (("get", "devices", "--all"), 2, "--all does not apply: it is for incidents"),
        (("get", "devices", "--device", "a"), 2, "--device does not apply: it is for incidents"),
        (("get", "incidents", "-n", "ml"), 2, "--namespace does not apply: incidents come from the ledger"),
        (("diff", "-1h", "now", "-k", "incidents"), 2, "Incidents cannot be compared"),
    ],
)
def test_problems(cli: Cli, arguments: tuple[str, ...], code: int, problem: str) -> None:
    result = cli(*arguments)
    assert result.code == code
    assert problem in result.err


def test_the_tables_are_proven_and_rebuilt(cli: Cli) -> None:
    before = cli("incident", "list", "--all", "-o", "json").out
    assert cli("verify", "incidents").code == 0
    assert cli("replay", "incidents").code == 0
    assert cli("incident", "list", "--all", "-o", "json").out == before


async def test_a_watch_says_which_incidents_begin_and_end(migrated_url: str) -> None:
    with servers.nats_server() as nats:
        await _record(nats.url)
        environ = os.environ | {"NATS_URL": nats.url, "DATABASE_URL": migrated_url}
        async with watching(environ, "incident", "list", "--node", "n2", "-w", "--no-headers") as process:
            assert (await next_line(process)).split()[1:4] == ["n2", "XID", "c"]
            more = reported((92, card_report("d", "79")), source=OTHER, first=2)
            await _record(nats.url, *more)
            (incident, *begun) = (await next_line(process)).split()
            assert begun[:3] == ["n2", "XID", "d"]
            await _record(nats.url, *more, *reported((93, card_report("d", healthy=True)), source=OTHER, first=3))
            assert process.stderr is not None
            async with asyncio.timeout(DEADLINE_S):
                assert f"incident '{incident}' is gone".encode() in await process.stderr.readline()


def test_reports(cli: Cli) -> None:
    assert len(cli("report", "incidents", "--node", "n2", "-o", "json").json()) == 1
    by_check = [row for row in cli("report", "mttr", "-o", "json").json() if row["per"] == "check"]
    assert [(row["value"], row["incidents"]) for row in by_check] == [("ECC", 1), ("XID", 2)]
    for name in ("mttd", "repeated-codes", "flapping", "lemons"):
        assert cli("report", name).code == 0
