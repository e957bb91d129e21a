"""What hostile agents make folds keep is bounded on real servers, through restarts and rebuilds."""

from functools import partial

import pytest

from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.inventory.folds import AGENT_CARDS_MAX
from gpuledger.events.allocation import (
    UNITS_OF_CONTAINER_MAX,
    UNITS_OF_NODE_MAX,
    AllocatedDevices,
    AllocationObserved,
)
from gpuledger.events.device import Card
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import CARDS_PER_NODE_MAX, EndedEpoch, NodeAgentStarted, NodeDevicesObserved, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import Rule
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.definition import Projection
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import AllocationsProjection
from support.events import AGENT, event
from support.projections import QUICK, QUICK_SERVICE, are_folded, assert_true, execute, publish, running
from support.runners import decided
from support.waiting import eventually

ATTACKS = 4


def holds(container: str, units: int) -> tuple[str, Payload]:
    held = (AllocatedDevices(resource="r", devices=tuple(map(str, range(units)))),)
    data = AllocationObserved(node="n1", namespace="ns", pod="p", container=container, resources=held)
    return f"n1/ns/p/{container}", data


def attack(number: int) -> list[Decoded]:
    """Containers that fill half of a node, as many cards as a survey holds, and an epoch that ends later and later."""
    cards = tuple(
        Card(
            uuid=f"GPU-{number}-{place}", pci_address=f"{number:04x}:{place:02x}:00.0",
            pci_vendor="10de", pci_device="2335",
        )
        for place in range(CARDS_PER_NODE_MAX)
    )  # fmt: skip
    ended = tuple(EndedEpoch(epoch="lost", last=10 * number + more) for more in range(1, 4))
    start = NodeAgentStarted(version="1", hardware="nvml", clean=True, durable=True, ended=ended)
    full = [holds(f"{number}-{one}", UNITS_OF_CONTAINER_MAX) for one in ("a", "b")]
    facts = [*full, holds(f"{number}-small", 1), ("n1", NodeDevicesObserved(cards=cards)), ("n1", start)]
    first = number * len(facts) + 1
    return [event(data, subject, number=at, at=at, source=AGENT) for at, (subject, data) in enumerate(facts, first)]


@pytest.mark.long
async def test_bounds_hold_through_restarts_and_rebuilds(ledger: JetStreamLedger, url: str) -> None:
    projections: list[Projection] = [SourcesProjection(), InventoryProjection(), AllocationsProjection()]

    async def rules_are_enforced() -> bool:
        return {*Rule} <= {one.subject for one in await decided(ledger)}

    async with running(Runner(projections[0], ledger, url, settings=QUICK_SERVICE)):
        await eventually(rules_are_enforced)
    await publish(ledger, [event(NodeObserved(uid="u", nfd_version="0.17.0"), "n1", source="/watchers/nodes")])
    for number in range(ATTACKS):
        async with running(*(Runner(one, ledger, url, settings=QUICK) for one in projections)):
            await publish(ledger, attack(number))
            await eventually(partial(are_folded, ledger, url, projections))
    await assert_true(ledger, url, projections)
    for projection in projections:
        await rebuild(projection, ledger, url)
    await assert_true(ledger, url, projections)
    room = UNITS_OF_NODE_MAX // UNITS_OF_CONTAINER_MAX - 1
    units = execute(url, "SELECT count(*) FROM gpuledger_live.container_allocation")
    assert units == [(room * UNITS_OF_CONTAINER_MAX + 2,)], "the last three large ones, and the small ones among them"
    assert execute(url, "SELECT count(*) FROM gpuledger_live.gpu_device") == [(AGENT_CARDS_MAX,)]
    lost = execute(url, "SELECT min(first), max(last), count(*) FROM gpuledger_live.missing WHERE epoch = 'lost'")
    assert lost == [(1, 10 * (ATTACKS - 1) + 3, 3 * ATTACKS)]
