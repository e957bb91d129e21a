"""The whole circle: pools decide, a node's agent sets up, its kubelet hands out, and the ledger knows all of it.

The services are the real ones on PostgreSQL, the agent is a process that a server confines to its node's subjects, and
people and watchers speak as they do. Nothing waits by the clock, and the agent's pauses are cut short.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from math import ceil
from typing import Any

import pytest

from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.allocation import AllocationEnded, AllocationObserved
from gpuledger.events.device import (
    DeviceErrorsObserved,
    DeviceHealthChanged,
    DevicePoolApplied,
    DevicePoolRefused,
    DevicePoolReleased,
)
from gpuledger.events.envelope import Event, decode
from gpuledger.events.node import NodeComponentsObserved, NodeDevicesObserved
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolDefined
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from gpuledger.runtime.clock import system_clock
from support import inventory, pools
from support.agent_fast import PAUSES
from support.agent_process import NODE, Place, a_place
from support.bootstrap import all_ready
from support.edges import LAYOUTS, confined_server
from support.ledgers import everything, jetstream_ledger, make_ledger
from support.pools import marked
from support.projections import QUICK, QUICK_SERVICE, assert_true, publish, running, table
from support.waiting import eventually

H100 = "2330"
POD_PERIOD_S = PAUSES["gpuledger.agent.kubelet.pod_resources"]["POLL_PERIOD_S"]
CARDS = 4
CARD, SLICED, MIG = "team/whole", "team/sliced", "team/mig"
RESOURCES = {name: f"gpu.deckhouse.io/{name.partition('/')[2]}" for name in (CARD, SLICED, MIG)}
ANSWERS = (DevicePoolApplied, DevicePoolRefused, DevicePoolReleased)
ASKED_TO_SETTLE = ceil(PAUSES["gpuledger.agent.setup.situation"]["SETTLE_S"] / POD_PERIOD_S) + 2


class Circle:
    """A node with its services, and facts of people and watchers."""

    def __init__(self, place: Place, ledger: JetStreamLedger, url: str) -> None:
        self.place, self.ledger, self.url = place, ledger, url
        self.agent, self.kubelet = place.agent, place.kubelet
        self._numbers: Counter[str] = Counter()

    async def record(self, *facts: tuple[str, Payload]) -> None:
        for subject, data in facts:
            source = (
                "/watchers/components" if isinstance(data, NodeComponentsObserved) else pools.source_of(subject, data)
            )
            self._numbers[source] += 1
            number = self._numbers[source]
            event = Event(f"{source}#{number}", source, data.TYPE, subject, system_clock(), data, "e1", number)
            await publish(self.ledger, [event])

    async def recorded(self, *kinds: type[Payload]) -> list[tuple[str, Any]]:
        """What the ledger has of these kinds: subject and data."""
        events = [decode(message.data) for message in await everything(self.ledger)]
        return [(event.subject, event.data) for event in events if isinstance(event.data, kinds)]

    def names(self) -> list[str]:
        """The devices' names, in the order of their cards."""
        found = table(self.url, "gpu_device", "pci_address, name")
        return [name for _, name in sorted(found)]

    def assignments(self) -> dict[str, tuple[str | None, str | None]]:
        """Pool and phase of each device."""
        return {
            name: (pool, phase) for name, pool, phase in table(self.url, "gpu_device_assignment", "device, pool, phase")
        }

    def states(self) -> dict[str, str]:
        """How far each device is prepared."""
        return dict(table(self.url, "gpu_device_state", "name, state"))

    async def comes(self, device: str, pool: str | None, phase: str | None) -> None:
        """Return when the device's assignment is this one."""

        async def has_come() -> bool:
            return self.assignments().get(device, (None, None)) == (pool, phase)

        await eventually(has_come)

    async def becomes(self, device: str, state: str) -> None:
        """Return when the device is in a state."""

        async def is_so() -> bool:
            return self.states().get(device) == state

        await eventually(is_so)

    async def withdrawn(self, resource: str) -> None:
        """Return when the kubelet gives nobody units of the resource any more."""

        async def is_so() -> bool:
            return "Healthy" not in self.kubelet.health(resource).values()

        await eventually(is_so)

    async def allocations_read_again(self) -> None:
        """Return when the agent has read the allocations often enough to take back whatever is free."""
        enough = self.kubelet.lists_served + ASKED_TO_SETTLE

        async def has_requests() -> bool:
            return self.kubelet.lists_served >= enough

        await eventually(has_requests)

    async def instances(self, card: str, profiles: list[str]) -> list[str]:
        """The UUIDs of a card's instances, once the ledger shows these profiles."""

        async def seen() -> list[tuple[str, str]]:
            (_, data) = (await self.recorded(NodeDevicesObserved))[-1]
            (found,) = [one for one in data.cards if one.uuid == card]
            return [(one.profile, one.uuid) for one in found.mig_instances]

        async def are_there() -> bool:
            return sorted(profile for profile, _ in await seen()) == profiles

        await eventually(are_there)
        return sorted(uuid for _, uuid in await seen())

    def totals(self) -> dict[str, int]:
        """How many units each pool offers."""
        return dict(table(self.url, "gpu_pool_total", "pool, total"))

    async def recorded_at_least(self, count: int, *kinds: type[Payload]) -> list[tuple[str, Any]]:
        """What the ledger has of these kinds, once there are so many."""

        async def has() -> bool:
            return len(await self.recorded(*kinds)) >= count

        await eventually(has)
        return await self.recorded(*kinds)


@pytest.fixture
async def circle(request: pytest.FixtureRequest, migrated_url: str) -> AsyncIterator[Circle]:
    layout, _, partitions = getattr(request, "param", "apart").partition("/")
    async with AsyncExitStack() as stack:
        server = stack.enter_context(confined_server(layout, [NODE]))
        await make_ledger(server.url, partitions=int(partitions or 1))
        place = await stack.enter_async_context(a_place(server, url=server.agent_url(NODE), hardware=f"{CARDS}xH100"))
        ledger = await stack.enter_async_context(jetstream_ledger(server.url))
        projections = (SourcesProjection(), InventoryProjection(), BootstrapProjection(), PoolsProjection())
        runners = [Runner(each, ledger, migrated_url, settings=QUICK_SERVICE) for each in projections]
        await stack.enter_async_context(running(*runners))
        yield Circle(place, ledger, migrated_url)
        await circle_holds(place, ledger, migrated_url)


async def circle_holds(place: Place, ledger: JetStreamLedger, url: str) -> None:
    """Check what holds in every story: the kubelet got nothing odd, and the rows agree with the log."""
    assert (place.kubelet.refusals, place.kubelet.undialled, place.kubelet.complaints) == ([], [], [])
    await place.drained()
    assert await place.agent.stop() == 0
    for projection in (InventoryProjection(), BootstrapProjection(), PoolsProjection(), SourcesProjection()):
        await Runner(projection, ledger, url, settings=QUICK).catch_up(await ledger.head())
        await assert_true(ledger, url, [projection])
    recorded = table(url, "source", "source, duplicates, missing")
    assert all((duplicates, missing) == (0, 0) for _, duplicates, missing in recorded), recorded
    assert not table(url, "rejection")


async def ready(circle: Circle) -> list[str]:
    """The node is seen, prepared and equipped; its devices' names."""
    cards = [H100] * CARDS
    await circle.record((NODE, inventory.observed(*cards)), (NODE, inventory.features(*cards)))
    await circle.record((NODE, all_ready(node_agent="ready")))
    await circle.agent.start()

    async def are_ready() -> bool:
        return list(circle.states().values()) == ["Ready"] * CARDS

    await eventually(are_ready)
    return circle.names()


def pool(unit: str = "Card", **more: Any) -> PoolDefined:
    return PoolDefined.model_validate({"uid": "u", "unit": unit, **more})


@pytest.mark.parametrize(
    "circle",
    [*(pytest.param(one, marks=[] if one == "apart" else pytest.mark.long) for one in LAYOUTS), "apart/4"],
    indirect=True,
)
async def test_a_card_is_set_up_used_lost_found_and_given_back(circle: Circle) -> None:
    name, *_ = await ready(circle)
    card = circle.agent.cards()[0]
    resource = RESOURCES[CARD]

    await circle.record((CARD, pool()), (name, marked("whole")))
    await circle.place.lists(1, resource=resource)
    await circle.comes(name, CARD, "Assigned")
    assert circle.kubelet.health(resource) == {card: "Healthy"}

    given = await circle.kubelet.allocate(resource, 1, "trainer")
    assert dict(given.envs) == {"NVIDIA_VISIBLE_DEVICES": card}
    ((_, allocation),) = await circle.recorded_at_least(1, AllocationObserved)
    assert (allocation.node, allocation.namespace, allocation.pod) == (NODE, "default", "trainer")
    assert [(one.resource, one.devices) for one in allocation.resources] == [(resource, (card,))]

    await circle.agent.inject(f"xid:79@{card}")
    await circle.place.lists(1, resource=resource, healthy=0)
    await circle.becomes(name, "Faulted")
    await circle.comes(name, CARD, "Pending")
    await circle.recorded_at_least(
        1, DeviceErrorsObserved
    )  # a look saw that it does not answer, so that one sees it come back
    await circle.agent.inject(f"recover@{card}")
    await circle.place.lists(1, resource=resource)
    await circle.becomes(name, "Ready")
    await circle.comes(name, CARD, "Assigned")
    verdicts = [data.healthy for subject, data in await circle.recorded(DeviceHealthChanged) if subject == card]
    assert verdicts == [True, False, True]

    await circle.record((name, marked()))
    await circle.comes(name, CARD, "Unassigning")
    await circle.withdrawn(resource)
    await circle.allocations_read_again()
    assert not await circle.recorded(DevicePoolReleased)
    circle.kubelet.release("trainer")
    await circle.comes(name, None, None)
    await circle.recorded_at_least(1, AllocationEnded)
    assert circle.states()[name] == "Ready"
    words = [data for _, data in await circle.recorded(*ANSWERS)]
    refused = [data.reason for data in words if isinstance(data, DevicePoolRefused)]
    assert refused in ([], ["CardMissing"]), "a repeated order for a missing card is refused"
    kept = [type(data) for data in words if not isinstance(data, DevicePoolRefused)]
    assert kept == [DevicePoolApplied, DevicePoolApplied, DevicePoolReleased]
    order = [type(data) for _, data in await circle.recorded(AllocationEnded, DevicePoolReleased)]
    assert order == [AllocationEnded, DevicePoolReleased]


async def test_cards_are_divided_and_sliced_and_divided_anew(circle: Circle) -> None:
    names = await ready(circle)
    mig, sliced = RESOURCES[MIG], RESOURCES[SLICED]
    cards = circle.agent.cards()

    await circle.record((MIG, pool("MIG", mig_profile="1g.10gb", slices_per_unit=2)), (SLICED, pool(slices_per_unit=4)))
    await circle.record((names[0], marked("mig")), (names[1], marked("sliced")))
    await circle.comes(names[0], MIG, "Assigned")
    await circle.comes(names[1], SLICED, "Assigned")
    await circle.place.lists(14, resource=mig)
    await circle.place.lists(4, resource=sliced)
    assert sorted(circle.kubelet.health(sliced)) == [f"{cards[1]}::{number}" for number in range(4)]
    first = await circle.instances(cards[0], ["1g.10gb"] * 7)
    assert set(circle.kubelet.health(mig)) == {f"{uuid}::{number}" for uuid in first for number in range(2)}
    applied = [(subject, data.partitions) for subject, data in await circle.recorded(DevicePoolApplied)]
    assert sorted(applied, key=str) == sorted([(names[0], 7), (names[1], None)], key=str)
    assert circle.totals() == {MIG: 14, SLICED: 4}

    given = await circle.kubelet.allocate(mig, 1, "trainer")
    assert given.envs["NVIDIA_VISIBLE_DEVICES"] in first
    await circle.recorded_at_least(1, AllocationObserved)
    await circle.record((MIG, pool("MIG", mig_profile="3g.40gb", generation=2)))
    await circle.withdrawn(mig)
    await circle.allocations_read_again()
    assert await circle.instances(cards[0], ["1g.10gb"] * 7) == first
    circle.kubelet.release("trainer")
    second = await circle.instances(cards[0], ["3g.40gb"] * 2)
    await circle.place.lists(2, resource=mig)
    assert set(circle.kubelet.health(mig)) == set(second)
    await circle.comes(names[0], MIG, "Assigned")

    await circle.record((names[0], marked()), (names[1], marked()))
    await circle.comes(names[0], None, None)
    await circle.comes(names[1], None, None)
    assert await circle.instances(cards[0], []) == []
    assert {data.reason for _, data in await circle.recorded(DevicePoolRefused)} <= {"DeviceInUse"}
