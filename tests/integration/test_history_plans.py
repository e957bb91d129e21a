"""How PostgreSQL looks into the past: by a look-up for each device, slot and node, never through a whole history."""

from collections.abc import Iterable
from typing import Any

import psycopg
import pytest

from gpuledger.events.device import DeviceInserted, DeviceRemoved
from gpuledger.events.node import NodeRegistered
from gpuledger.events.slot import SlotDeclared
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection, NodesProjection
from support.events import event, hour
from support.projections import QUICK, publish

HISTORIES = {"devices_at": "device_history", "slots_at": "occupancy_history", "nodes_at": "node_history"}
GROWING = {*HISTORIES.values(), "slot_history", "installation"}
FACTS = (
    (NodeRegistered(gpu_count=1), "n"),
    (SlotDeclared(node="n"), "s"),
    (DeviceInserted(slot="s"), "d"),
    (DeviceRemoved(slot="s"), "d"),
)


@pytest.mark.parametrize("function", HISTORIES)
async def test_a_moment_is_a_look_up_for_each_and_no_scan_of_a_history(url: str, function: str) -> None:
    read = await _read(url, function, at=3)  # before the last fact, so that the row of now does not answer
    assert HISTORIES[function] in read
    assert "installation" not in read
    for table in GROWING & read.keys():
        assert read[table]["Node Type"] in ("Index Scan", "Index Only Scan"), table
        assert "valid_from" in read[table]["Index Cond"], table


async def test_devices_that_have_not_changed_since_are_not_looked_up(url: str) -> None:
    assert {"device_history", "failure"}.isdisjoint(await _read(url, "devices_at", at=4))


async def _read(url: str, function: str, at: float) -> dict[str, dict[str, Any]]:
    """The nodes of the plan that read tables, by these, for the facts as of an hour."""
    ledger = MemoryLedger()
    facts = [event(data, name, number=number, at=number) for number, (data, name) in enumerate(FACTS, start=1)]
    head = await publish(ledger, facts)
    for projection in (DevicesProjection(), NodesProjection()):
        await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
    with psycopg.connect(url) as connection:
        # The tables are so small that a scan would be the right plan.
        connection.execute("SET enable_seqscan = off")
        explained = f"EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM report.{function}('{hour(at)}')"
        ((plan,),) = connection.execute(explained.encode()).fetchall()
    return {node["Relation Name"]: node for node in _executed(plan[0]["Plan"]) if "Relation Name" in node}


def _executed(plan: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if plan["Actual Loops"]:
        yield plan
        for part in plan.get("Plans", ()):
            yield from _executed(part)
