"""A hostile agent on real servers: every projection rejects it alike, and what was recorded before the rules stays."""

from collections.abc import Sequence
from datetime import timedelta

from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.device import Card, DeviceFailed, DevicePoolReleased
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeDecommissioned, NodeDevicesObserved, NodeObserved, NodeRegistered
from gpuledger.events.payload import Payload
from gpuledger.events.position import number_of
from gpuledger.events.publishing import EVENT_AHEAD_MAX
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.definition import Projection
from gpuledger.projection.rebuild import rebuild, rollback
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import NodesProjection
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.queries.backend import all_projections
from support.enforcing import ENFORCED, enforce
from support.events import AGENT, IMPORT, event
from support.projections import QUICK, QUICK_SERVICE, assert_true, execute, publish, reaches, running, table
from support.runners import decided

REBUILT: list[Projection] = [SourcesProjection(), NodesProjection()]


def hostile(first: int) -> list[Decoded]:
    """What an agent publishes under its own subject, and must not; numbered from `first`."""
    facts: list[tuple[str, Payload]] = [
        ("n2", NodeDecommissioned()),
        ("n1", NodeRegistered(gpu_count=64)),
        ("n2", NodeDevicesObserved()),
        ("n1/ns/p/c", AllocationObserved(node="n2", namespace="ns", pod="p", container="c")),
    ]
    return [event(data, subject, number=number, source=AGENT) for number, (subject, data) in enumerate(facts, first)]


def far_ahead(number: int) -> Decoded:
    """An event of an agent whose clock is years ahead."""
    return event(NodeDevicesObserved(), "n1", number=number, source=AGENT)._replace(
        time=system_clock() + EVENT_AHEAD_MAX * 900
    )


FLEET = [
    event(NodeRegistered(gpu_count=8), "n1", number=1, source=IMPORT),
    event(NodeRegistered(gpu_count=8), "n2", number=2, source=IMPORT),
]


async def catch_up(ledger: JetStreamLedger, url: str, projections: Sequence[Projection] | None = None) -> None:
    """Bring projections (None: all) to the head, one after the other."""
    for projection in all_projections() if projections is None else projections:
        await Runner(projection, ledger, url, settings=QUICK).catch_up(await ledger.head())


def rejected(url: str) -> list[int]:
    """The positions that were rejected."""
    return sorted(position for (position,) in table(url, "rejection", "position"))


def enforced(url: str, edition: str = "live") -> set[tuple[str, tuple[tuple[str, int], ...]]]:
    """Each projection's rules with their positions."""
    rows: Sequence[tuple[str, str, int]] = execute(
        url, "SELECT projection, rule, sequence FROM gpuledger.enforced_rule WHERE edition = %s ORDER BY 1, 2", edition
    )
    names = {projection for projection, _, _ in rows}
    return {(name, tuple((rule, at) for projection, rule, at in rows if projection == name)) for name in names}


async def test_what_a_hostile_agent_publishes_is_rejected_by_all(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, FLEET)
    await enforce(ledger, url)
    first = number_of(await ledger.head()) + 1
    await publish(ledger, [*hostile(1), far_ahead(5), event(NodeDevicesObserved(), "n1", number=6, source=AGENT)])
    await catch_up(ledger, url)
    assert rejected(url) == [first + place for place in range(5)]
    assert [row[:2] for row in table(url, "node", "node, gpu_count")] == [("n1", 8), ("n2", 8)]
    assert table(url, "container_allocation_report") == []
    assert {row[0]: row[1] for row in table(url, "source", "source, missing")}.items() >= {IMPORT: 0, AGENT: 0}.items()
    await assert_true(ledger, url, all_projections())


async def test_an_agent_speaks_of_devices_of_its_own_node_only(ledger: JetStreamLedger, url: str) -> None:
    """Where a device is takes state: `inventory` has it, and records its verdict for all."""
    card = Card(uuid="GPU-1", pci_address="0000:17:00.0", pci_vendor="10de", pci_device="2335", pci_class="0302")
    other, failed = "/nodes/n2/agent", DeviceFailed(kind="XID 79")
    await enforce(ledger, url)
    await publish(
        ledger,
        [
            event(NodeObserved(uid="u1", nfd_version="0.17.0"), "n1", number=1, source="/watchers/nodes"),
            event(NodeDevicesObserved(cards=(card,)), "n1", number=1, source=AGENT),
            event(failed, "GPU-1", number=1, at=1, source=other),
            event(failed, "GPU-1", number=2, at=1, source=AGENT),
        ],
    )
    await catch_up(ledger, url, [InventoryProjection()])
    (name,) = (row[0] for row in table(url, "gpu_device", "name"))
    await publish(ledger, [event(DevicePoolReleased(pool="p"), name, number=2, at=2, source=other)])
    await catch_up(ledger, url, [InventoryProjection()])
    await catch_up(ledger, url)
    assert table(url, "failure", "device, source") == [("GPU-1", AGENT)]
    counted = {row[0]: row[1] for row in table(url, "source", "source, rejected")}
    assert (counted[AGENT], counted[other]) == (0, 2)
    await assert_true(ledger, url, all_projections())


async def test_a_card_stays_on_its_node_across_restarts_and_rebuilds_whoever_claims_it(
    ledger: JetStreamLedger, url: str
) -> None:
    card = Card(uuid="GPU-1", pci_address="0000:17:00.0", pci_vendor="10de", pci_device="2335", pci_class="0302")
    seen, other = NodeDevicesObserved(cards=(card,)), "/nodes/n2/agent"
    nodes = [
        event(NodeObserved(uid=node, nfd_version="0.17.0"), node, number=number, source="/watchers/nodes")
        for number, node in enumerate(("n1", "n2"), 1)
    ]
    await enforce(ledger, url)
    await publish(ledger, [*nodes, event(seen, "n1", number=1, source=AGENT)])
    await catch_up(ledger, url, [InventoryProjection()])
    ahead = event(seen, "n2", number=1, source=other)._replace(time=system_clock() + EVENT_AHEAD_MAX * 0.9)
    await publish(ledger, [ahead, event(seen, "n1", number=2, source=AGENT)])
    await catch_up(ledger, url, [InventoryProjection()])
    assert table(url, "gpu_device", "node, card") == [("n1", "GPU-1")]
    await rebuild(InventoryProjection(), ledger, url)
    await publish(ledger, [event(NodeDevicesObserved(), "n1", number=3, at=1, source=AGENT)])
    await catch_up(ledger, url, [InventoryProjection()])
    await catch_up(ledger, url)
    assert table(url, "gpu_device", "node, card") == [("n2", "GPU-1")]
    assert {row[0]: row[1] for row in table(url, "source", "source, rejected")}[other] == 1
    await assert_true(ledger, url, all_projections())


async def test_a_ledger_of_an_earlier_build_stays_as_it_was_folded(ledger: JetStreamLedger, url: str) -> None:
    """History is not judged again: neither by a service that goes on, nor by a rebuild, nor by a proof."""
    await publish(ledger, [*FLEET, *hostile(1), far_ahead(5)])
    await catch_up(ledger, url)
    nodes = table(url, "node")
    assert table(url, "rejection") == []
    assert {row[0] for row in nodes} == {"n1", "n2"}
    assert nodes != [], "the agent was believed"
    last = await enforce(ledger, url)
    await publish(ledger, [*hostile(6), far_ahead(10)])
    await catch_up(ledger, url)
    assert table(url, "node") == nodes
    assert rejected(url) == [last + place for place in range(1, 6)]
    await assert_true(ledger, url, all_projections())
    positions = range(last - len(ENFORCED) + 1, last + 1)
    at = tuple(sorted(zip(ENFORCED, positions, strict=True)))
    assert enforced(url) == {(projection.name, at) for projection in all_projections()}


async def test_rules_survive_restarts_rebuilds_and_a_rollback(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, [*FLEET, *hostile(1)])
    await enforce(ledger, url)
    await catch_up(ledger, url, REBUILT)
    before = enforced(url)
    for number in (5, 9):
        await publish(ledger, hostile(number))
        await catch_up(ledger, url, REBUILT)
    for projection in REBUILT:
        await rebuild(projection, ledger, url)
    assert enforced(url) == enforced(url, "prev") == before
    await publish(ledger, hostile(13))
    await catch_up(ledger, url, REBUILT)
    await assert_true(ledger, url, REBUILT)
    for projection in REBUILT:
        await rollback(projection, url)
    await catch_up(ledger, url, REBUILT)
    assert enforced(url) == before
    assert len(table(url, "rejection")) == 12
    await assert_true(ledger, url, REBUILT)


async def test_a_second_service_and_a_restart_record_no_rule_again(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, FLEET)
    last = await enforce(ledger, url)
    async with running(Runner(SourcesProjection(), ledger, url, settings=QUICK_SERVICE)):
        head = await publish(ledger, [event(DeviceFailed(kind="DBE"), "d", number=3, source=IMPORT)])
        await reaches(url, "sources", head)
    assert head == last + 1
    assert [one.subject for one in await decided(ledger)] == ENFORCED


async def test_a_command_that_reads_enforces_nothing(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, FLEET)
    await catch_up(ledger, url)
    assert await ledger.head() == len(FLEET)
    assert enforced(url) == set()


def test_the_bound_of_times_is_a_day() -> None:
    assert timedelta(days=1) == EVENT_AHEAD_MAX
