"""Pools on real servers: what is decided is published once, a restart decides nothing again, and the rows are true."""

from collections.abc import Iterable

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.domain.pools.orders import orders_text
from gpuledger.events.device import DeviceAssignmentChanged
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.node import NodeDevicesWanted
from gpuledger.events.payload import Payload
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.events.pool import PoolChanged, PoolReleased
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from support.ledgers import everything
from support.pools import MET, PoolsLog, applied, detected, marked, pool, prepared, released, state
from support.projections import QUICK, assert_true, publish, reaches, running, table
from support.waiting import eventually

DEVICES = ("n1-0", "n1-1")
BEGIN: tuple[tuple[str, Payload], ...] = (
    (MODULE_CONFIG, MET),
    ("n1", prepared()),
    *((device, detected("n1")) for device in DEVICES),
    *((device, state("Ready")) for device in DEVICES),
    ("ns/p", pool(slices_per_unit=4, devices_per_node_max=1)),
    ("q", pool(requires_annotation=False, auto_approve={"labels": {"tier": "gold"}})),
)


class NumberedSources:
    """Facts as events of their sources, numbered across restarts."""

    def __init__(self) -> None:
        self._numbered = PoolsLog()
        self._hour = 0

    def events(self, facts: Iterable[tuple[str, Payload]]) -> list[Decoded]:
        """The facts, an hour apart."""
        events = []
        for subject, data in facts:
            self._hour += 1
            events.append(self._numbered.event(subject, data, self._hour))
        return events


async def decided(ledger: JetStreamLedger) -> list[Decoded]:
    """What the service recorded, as the ledger has it."""
    return [decode(one.data) for one in await everything(ledger) if one.subject.startswith("ledger.svc.pools.")]


ORDERS = [
    [("n1-0", "ns/p", False)],
    [("n1-0", "ns/p", False), ("n1-1", "q", False)],
    [("n1-0", "ns/p", True), ("n1-1", "q", False)],
    [("n1-1", "q", False)],
]
"""The lists that the node gets, each device with its pool and whether it is being released."""


async def test_pools_are_decided_once_and_a_restart_goes_on(ledger: JetStreamLedger, migrated_url: str) -> None:
    sources = NumberedSources()

    async def has_decided(count: int) -> bool:
        return len(await decided(ledger)) >= count

    async with running(Runner(PoolsProjection(), ledger, migrated_url, settings=QUICK)):
        facts = [*BEGIN, ("n1-0", marked("p")), ("n1-0", applied("ns/p")), ("n1-1", marked("p"))]
        await publish(ledger, sources.events(facts))
        await eventually(lambda: has_decided(7))
    assert [one.subject for one in await decided(ledger)] == ["ns/p", "q", "n1-0", "n1", "n1-0", "ns/p", "n1-1"]
    columns = "device, pool, phase, automatic, reason"
    assert table(migrated_url, "gpu_device_assignment", columns) == [
        ("n1-0", "ns/p", "Assigned", False, "ConfirmedByAgent"),
        ("n1-1", None, None, False, "NodeLimitReached"),
    ]
    assert table(migrated_url, "gpu_pool_total", "pool, total") == [("ns/p", 4), ("q", 0)]

    async with running(Runner(PoolsProjection(), ledger, migrated_url, settings=QUICK)):
        again = [("n1-1", marked("p")), ("n1-0", state("Ready")), ("ns/p", BEGIN[-2][1])]
        await reaches(migrated_url, "pools", await publish(ledger, sources.events(again)))
        assert len(await decided(ledger)) == 7

        ending = [
            ("n1-1", marked(tier="gold")),
            ("ns/p", pool(deleting=True)),
            ("n1-0", released("ns/p")),
            ("n1-1", applied("q")),
        ]
        await publish(ledger, sources.events(ending))
        await eventually(lambda: has_decided(17))
        await reaches(migrated_url, "pools", await ledger.head())

    ids = [one.id for one in await decided(ledger)]
    assert len(ids) == len(set(ids)) == 17
    kinds = [type(one.data) for one in (await decided(ledger))[7:]]
    assert kinds.count(PoolReleased) == 1
    assert (kinds.count(DeviceAssignmentChanged), kinds.count(PoolChanged)) == (4, 2)
    lists = [one.data.devices for one in await decided(ledger) if isinstance(one.data, NodeDevicesWanted)]
    assert [[(one.device, one.pool, one.releasing) for one in devices] for devices in lists] == ORDERS
    assert table(migrated_url, "pool_node_orders", "node, devices") == [("n1", orders_text(lists[-1]))]
    assert table(migrated_url, "gpu_device_assignment", columns) == [
        ("n1-0", None, None, False, "PoolTakesNoDevices"),
        ("n1-1", "q", "Assigned", True, "ConfirmedByAgent"),
    ]
    await assert_true(ledger, migrated_url, [PoolsProjection()])


async def test_requesting_pods_are_kept_as_long_as_they_exist(ledger: JetStreamLedger, migrated_url: str) -> None:
    sources, requests = NumberedSources(), {"gpu.deckhouse.io/p": 2}
    facts: list[tuple[str, Payload]] = [
        *BEGIN,
        ("ns/ended", PodObserved(uid="u", node="n1", requests=requests)),
        ("ns/stays", PodObserved(uid="u", node="n1", requests=requests)),
        ("ns/waits", PodObserved(uid="u", requests=requests)),
    ]
    async with running(Runner(PoolsProjection(), ledger, migrated_url, settings=QUICK)):
        await reaches(migrated_url, "pools", await publish(ledger, sources.events(facts)))
    assert len(table(migrated_url, "pool_pod", "pod")) == 3
    later: list[tuple[str, Payload]] = [
        ("ns/ended", PodGone(uid="u")),
        ("ns/stays", PodObserved(uid="u", node="n1")),
        ("ns/waits", PodObserved(uid="u", node="n1", requests=requests)),
    ]
    async with running(Runner(PoolsProjection(), ledger, migrated_url, settings=QUICK)):
        await reaches(migrated_url, "pools", await publish(ledger, sources.events(later)))
        await reaches(migrated_url, "pools", await ledger.head())
    assert table(migrated_url, "pool_pod", "pod, node, requests, bound_at < observed_at") == [
        ("ns/stays", "n1", "{}", True),
        ("ns/waits", "n1", '{"gpu.deckhouse.io/p":2}', False),
    ]
    await assert_true(ledger, migrated_url, [PoolsProjection()])
