"""Kill -9 of a node's agent and of its nats-server at moments drawn by a seed, while cards fail and pools change.

Afterwards no number was used twice and none is missing, and kubelet, ledger and the desired devices agree.
`GPULEDGER_FAULT_SEED` repeats a run, `GPULEDGER_FAULT_ROUNDS` says how many kills the long run has.
"""

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress
from itertools import count, pairwise
from typing import Any, NamedTuple

import grpc.aio
import pytest

from gpuledger.agent.errors import ControlError
from gpuledger.events.allocation import AllocationEnded, AllocationObserved
from gpuledger.events.device import DeviceHealthChanged, DevicePoolApplied, DevicePoolRefused, DevicePoolReleased
from gpuledger.events.node import NodeAgentStarted, NodeDevicesObserved, WantedDevice
from gpuledger.local.servers.nats import NatsServer
from support.agent_fast import QUIET
from support.agent_process import Place, a_place, desired_devices, is_verdict
from support.ledgers import DEADLINE_S
from support.outbox import Recorded
from support.waiting import eventually

ROUNDS = 4
LONG_ROUNDS = 40
CARDS = 3
STEPS_MAX = 12
"""So many things happen between two kills at most."""

CLEAR_AFTER_S = "1"
XIDS = (13, 31, 48, 63, 79, 95, 119)


class Setup(NamedTuple):
    """How a pool sets up its cards, and how many units of each card the kubelet then has."""

    pool: str
    unit: str
    mig_profile: str | None
    slices_per_unit: int
    instances: int
    """How many instances the card is divided into; 0: it is none."""

    @property
    def resource(self) -> str:
        return f"gpu.deckhouse.io/{self.pool.partition('/')[2]}"

    @property
    def units(self) -> int:
        return max(self.instances, 1) * self.slices_per_unit


SETUPS = (
    Setup("team/whole", "Card", None, 1, 0),
    Setup("team/sliced", "Card", None, 3, 0),
    Setup("team/small", "MIG", "1g.10gb", 1, 7),
    Setup("team/big", "MIG", "3g.40gb", 2, 2),
)


class Story:
    """What happens to a node, drawn by chance; `desired` has each card's setup and order, by number."""

    def __init__(self, place: Place, chance: random.Random) -> None:
        self.place, self.chance = place, chance
        self.desired: dict[int, tuple[Setup, WantedDevice]] = {}
        self._pods = count(1)
        self._is_bus_there = True

    async def step(self) -> None:
        """Something happens."""
        happens = (self._fail, self._fail, self._recover, self._want, self._allocate, self._allocate, self._release)
        await self.chance.choice(happens)()
        await asyncio.sleep(self.chance.random() / 5)

    async def kill(self) -> None:
        """Something is killed, and the agent at any rate."""
        if self.chance.random() < 0.5:
            await self._toggle_bus()
        if self.chance.random() < 0.2:
            await self.place.kubelet.restart()
        assert self.place.agent.running, f"the agent ended by itself:\n{self.place.agent.output}"
        await self.place.agent.kill()
        if self.chance.random() < 0.3:
            await self._toggle_bus()
        await self.place.agent.start(wait=self.chance.random() < 0.8)

    async def end(self) -> None:
        """All is there and well; some containers stay."""
        if not self._is_bus_there:
            await self._toggle_bus()
        await self.place.agent.up()
        await self._want()
        await self.place.agent.inject("recover")

    async def _toggle_bus(self) -> None:
        if self._is_bus_there:
            self.place.nats.kill()
        else:
            await asyncio.to_thread(self.place.nats.start)
        self._is_bus_there = not self._is_bus_there

    async def _fail(self) -> None:
        with suppress(ControlError):
            await self.place.agent.inject(f"xid:{self.chance.choice(XIDS)}@{self.chance.randrange(CARDS)}")

    async def _recover(self) -> None:
        with suppress(ControlError):
            await self.place.agent.inject(f"recover@{self.chance.randrange(CARDS)}")

    async def _want(self) -> None:
        """Pools order other cards, or divide them otherwise."""
        if not self._is_bus_there:
            return
        for number in self.chance.sample(range(CARDS), self.chance.randint(1, CARDS)):
            setup = self.chance.choice((None, *SETUPS))
            self.desired.pop(number, None)
            if setup is not None:
                fields = setup._asdict() | {"resource": setup.resource}
                del fields["instances"]
                (wish,) = desired_devices(self.place.agent, number, **fields)
                self.desired[number] = (setup, wish)
        await self.place.set_desired(*(wish for _, wish in self.desired.values()))

    async def _allocate(self) -> None:
        with suppress(LookupError, grpc.aio.AioRpcError):
            resource = self.chance.choice(SETUPS).resource
            async with asyncio.timeout(DEADLINE_S):
                await self.place.kubelet.allocate(resource, 1, f"pod-{next(self._pods)}")

    async def _release(self) -> None:
        pods = sorted({pod for _, pod, _ in self.place.kubelet.held})
        if pods:
            self.place.kubelet.release(self.chance.choice(pods))


async def run(nats: NatsServer, *, rounds: int) -> None:
    seed = int(os.environ.get("GPULEDGER_FAULT_SEED") or random.SystemRandom().randint(1, 10**6))
    print(f"GPULEDGER_FAULT_SEED={seed}")
    async with a_place(nats, hardware=f"{CARDS}xH100", environ={QUIET: CLEAR_AFTER_S}) as place:
        story = Story(place, random.Random(seed))
        await place.agent.start()
        for _ in range(rounds):
            for _ in range(story.chance.randint(1, STEPS_MAX)):
                await story.step()
            await story.kill()
        await story.end()
        await _agrees(place, story)
        assert (place.kubelet.refusals, place.kubelet.complaints) == ([], [])
        await _assert_reported_once(place, rounds)


async def _agrees(place: Place, story: Story) -> None:
    """Return when kubelet, ledger and pools are of one mind; containers that have what is to go, go first."""
    kept = {pod for _, pod, _ in place.kubelet.held if story.chance.random() < 0.5}
    for pod in {pod for _, pod, _ in place.kubelet.held} - kept:
        place.kubelet.release(pod)
    await _gone(place, story)

    async def agree() -> bool:
        account = await place.account()
        return not _differences(place, story, account)

    try:
        await eventually(agree, interval_s=0.2)
    except TimeoutError:
        differences = _differences(place, story, await place.account())
        raise AssertionError(f"{place.agent.output[-6000:]}\n{differences}") from None


async def _gone(place: Place, story: Story) -> None:
    """End the containers with units that no pool orders any more, or that are divided otherwise."""
    for (_, pod, _), had in list(place.kubelet.held.items()):
        for resource, ids in had.items():
            names = {_card_name(story, number, resource) for number in range(CARDS)}
            if any(not any(name and one.startswith(name) for name in names) for one in ids) or _is_mig(resource):
                place.kubelet.release(pod)


def _is_mig(resource: str) -> bool:
    return any(setup.resource == resource and setup.instances for setup in SETUPS)


def _card_name(story: Story, number: int, resource: str) -> str | None:
    desired = story.desired.get(number)
    return desired[1].uuid if desired is not None and desired[0].resource == resource else None


def _differences(place: Place, story: Story, account: Recorded) -> dict[str, tuple[Any, Any]]:
    """What is not as it should be: what it should be, and what it is."""
    events = [event for event in account.events if event.subject]
    found = {
        "units": (_desired_units(story), _listed(place)),
        "answers": (_desired_answers(story), _answers(story, events)),
        "cards": (_desired_instances(place, story), _instances(events)),
        "unfit": (set(), _unfit(events)),
        "allocations": (_held(place), _standing(events)),
    }
    return {name: (wish, fact) for name, (wish, fact) in found.items() if wish != fact}


def _desired_units(story: Story) -> dict[str, int]:
    units: Counter[str] = Counter()
    for setup, _ in story.desired.values():
        units[setup.resource] += setup.units
    return dict(units)


def _listed(place: Place) -> dict[str, int]:
    health = {name: list(place.kubelet.health(name).values()) for name in place.kubelet.resources}
    return {name: len(units) for name, units in health.items() if units and set(units) == {"Healthy"}}


def _desired_answers(story: Story) -> dict[str, tuple[str, str, int | None]]:
    desired = story.desired.values()
    return {wish.device: ("pool-applied", setup.pool, setup.instances or None) for setup, wish in desired}


def _answers(story: Story, events: list[Any]) -> dict[str, tuple[str, str, int | None]]:
    """The last word on each device that pools want; of what they dropped from their list nothing is told."""
    desired = {wish.device for _, wish in story.desired.values()}
    reports: dict[str, tuple[str, str, int | None]] = {}
    for event in events:
        match event.data:
            case DevicePoolApplied(pool=pool, partitions=partitions):
                reports[event.subject] = ("pool-applied", pool, partitions)
            case DevicePoolRefused(pool=pool):
                reports[event.subject] = ("pool-refused", pool, None)
            case DevicePoolReleased(pool=pool):
                reports.pop(event.subject, None)
    return {device: report for device, report in reports.items() if device in desired}


def _desired_instances(place: Place, story: Story) -> dict[str, list[str | None]]:
    desired = {number: setup for number, (setup, _) in story.desired.items()}
    cards = enumerate(place.agent.cards())
    return {card: [desired[n].mig_profile] * desired[n].instances if n in desired else [] for n, card in cards}


def _instances(events: list[Any]) -> dict[str, list[str | None]]:
    last = next((event.data for event in reversed(events) if isinstance(event.data, NodeDevicesObserved)), None)
    cards = last.cards if last is not None else ()
    return {card.uuid or "": [instance.profile for instance in card.mig_instances] for card in cards}


def _unfit(events: list[Any]) -> set[str]:
    last = {event.subject: event.data.healthy for event in events if isinstance(event.data, DeviceHealthChanged)}
    return {card for card, healthy in last.items() if not healthy}


def _held(place: Place) -> dict[str, dict[str, list[str]]]:
    return {pod: {name: sorted(ids) for name, ids in had.items()} for (_, pod, _), had in place.kubelet.held.items()}


def _standing(events: list[Any]) -> dict[str, dict[str, list[str]]]:
    current: dict[str, AllocationObserved] = {}
    for event in events:
        if isinstance(event.data, AllocationObserved):
            current[event.subject] = event.data
        elif isinstance(event.data, AllocationEnded):
            current.pop(event.subject, None)
    return {one.pod: {each.resource: sorted(each.devices) for each in one.resources} for one in current.values()}


async def _assert_reported_once(place: Place, rounds: int) -> None:
    await place.drained()
    account = await place.account()
    assert not any(account.missing.values())
    assert not account.dropped
    assert len({event.epoch for event in account.events}) == 1
    assert len([event for event in account.events if isinstance(event.data, NodeAgentStarted)]) <= rounds + 1
    times = [event.time for event in account.events]
    assert times == sorted(times)
    for card in place.agent.cards():
        verdicts = [event.data.healthy for event in account.events if is_verdict(event, card)]
        repeated = sum(one == other for one, other in pairwise(verdicts))
        assert repeated <= rounds, "a verdict is repeated only where its first report may be lost"


@pytest.mark.long
async def test_a_few_kills_lose_nothing_and_count_nothing_twice(fresh_nats: NatsServer) -> None:
    await run(fresh_nats, rounds=ROUNDS)


@pytest.mark.faults
@pytest.mark.timeout(3600)
async def test_many_kills_lose_nothing_and_count_nothing_twice(fresh_nats: NatsServer) -> None:
    await run(fresh_nats, rounds=int(os.environ.get("GPULEDGER_FAULT_ROUNDS") or LONG_ROUNDS))
