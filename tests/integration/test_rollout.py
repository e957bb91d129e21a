"""The decider of rollouts on real servers: its waits go on after a restart, and its rows are those of the log."""

from datetime import timedelta
from typing import Any

from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.deciders.rollout.projection import RolloutProjection
from gpuledger.events.envelope import Decoded
from gpuledger.events.machine_config import NodeMachineObserved
from gpuledger.events.node import NodeLabelled, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from gpuledger.runtime.clock import system_clock
from support.events import event
from support.machine_configs import config_file, config_pool, machine_config
from support.projections import QUICK, assert_true, publish, reaches, running, table
from support.rollout import source_of
from support.waiting import eventually


def facts() -> list[Decoded]:
    """A pool that waits a second, two nodes and a MachineConfig."""
    now, numbers = system_clock() - timedelta(minutes=1), dict[str, int]()

    def fact(subject: str, data: Payload) -> Decoded:
        source = source_of(subject, data)
        numbers[source] = numbers.get(source, 0) + 1
        return event(data, subject, number=numbers[source], source=source)._replace(time=now)

    given: dict[str, Any] = {"created": now, "current_revision": "older", "agent_state": "done"}
    nodes = [
        fact(node, data)
        for node in ("n1", "n2")
        for data in (
            NodeObserved(uid=node),
            NodeLabelled(uid=node, labels={"gpu": "yes"}),
            NodeMachineObserved(uid=node, **given),
        )
    ]
    pool = config_pool(debounce_s=1, node_selector={"labels": {"gpu": "yes"}})
    return [*nodes, fact("worker", pool), fact("sysctl", machine_config(config_file()))]


async def test_a_rollout_goes_on_after_a_restart_and_its_rows_are_those_of_the_log(
    ledger: JetStreamLedger, migrated_url: str
) -> None:
    async with running(Runner(RolloutProjection("n2"), ledger, migrated_url, settings=QUICK)):
        await publish(ledger, facts())
        await reaches(migrated_url, "rollout", await ledger.head())
    async with (
        running(Runner(RolloutProjection("n1"), ledger, migrated_url, settings=QUICK)),
        running(Runner(MaintenanceProjection(), ledger, migrated_url, settings=QUICK)),
    ):
        await eventually(lambda: _has_rendered(migrated_url))

    async with (
        running(Runner(RolloutProjection("n2"), ledger, migrated_url, settings=QUICK)),
        running(Runner(MaintenanceProjection(), ledger, migrated_url, settings=QUICK)),
    ):
        await eventually(lambda: _has_placed(migrated_url, "n2"))
        await reaches(migrated_url, "rollout", await ledger.head())
    await assert_true(ledger, migrated_url, [RolloutProjection(), MaintenanceProjection()])
    assert dict(table(migrated_url, "machine_config_node", "node, pool")) == {"n1": "worker", "n2": "worker"}


async def _has_rendered(url: str) -> bool:
    return bool(table(url, "rendered_machine_config", "name"))


async def _has_placed(url: str, node: str) -> bool:
    return table(url, "machine_config_controller", "node") == [(node,)]
