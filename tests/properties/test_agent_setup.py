"""Whatever is desired, used, broken and restarted, nothing in use is touched, and all ends as desired."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from hypothesis import example, given
from hypothesis import strategies as st

from gpuledger.agent.hardware.errors import HardwareError
from gpuledger.agent.hardware.simulated_card import SimulatedCard
from gpuledger.agent.setup.offers import ids_of, partitions, profile_of, unit_uuids
from gpuledger.agent.setup.situation import SETTLE_S
from gpuledger.agent.setup.state import HeldDevice, Outcome, SetupState, dump, load
from gpuledger.domain.mig.plan import MigState, Plan, plan
from gpuledger.events.node import WantedDevice
from support.device_setup import NOON, Node, desired, later
from support.thoroughness import examples

CARDS: Final = 2
LONG_S: Final = 2 * SETTLE_S
PROFILES: Final = ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb")

shapes = st.fixed_dictionaries(
    {"pool": st.sampled_from("pq"), "slices_per_unit": st.integers(1, 3)},
    optional={"mig_profile": st.sampled_from(PROFILES), "releasing": st.just(True)},
)
indices = st.integers(0, CARDS - 1)
moves = st.one_of(
    st.tuples(st.just("want"), indices, shapes),
    st.tuples(st.just("drop"), indices),
    st.tuples(st.just("take"), st.integers(0, 30)),
    st.tuples(st.just("take late"), st.integers(0, 30)),
    st.tuples(st.just("leave"), st.integers(0, 30)),
    st.tuples(st.just("process"), st.integers(0, 30)),
    st.tuples(st.just("exit"), indices),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("by hand"), indices, st.integers(0, 7), st.sampled_from(PROFILES)),
    st.tuples(st.just("foreign"), indices),
    st.tuples(st.just("divisible"), indices),
    st.tuples(st.just("replace"), indices, st.integers(0, 1)),
    st.tuples(st.just("unknown")),
    st.tuples(st.just("observe use")),
    st.tuples(st.just("off")),
    st.tuples(st.just("on")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.5, 2.0, 11.0, 70.0])),
)


class Story:
    """What happens to a node; after each thing that happens the rules hold."""

    def __init__(self) -> None:
        self.node = Node(f"{CARDS}xA100")
        self.node.see_use()
        self.wishes: dict[str, WantedDevice] = {}
        self.requests = 0
        self.seen_at: dict[tuple[str, str, str], float] = {}
        self.offered: set[tuple[str, str, str]] = set()

    async def do(self, move: tuple[Any, ...]) -> None:
        getattr(self, "_" + move[0].replace(" ", "_"))(*move[1:])
        await self.node.reconcile(move[1] if move[0] == "wait" else 0.0)
        for offer in self.node.board.state.offers:
            self.seen_at |= {(offer.resource, unit.id, unit.uuid): self.node.now for unit in offer.units}
        self.check()

    def check(self) -> None:
        units = self.node.units()
        assert len({unit.id for unit in units}) == len(units)
        assert all(len(unit.id) <= 63 for unit in units)
        held = {card.uuid: one for one in self.wishes.values() for card in self.node.cards() if card.uuid == one.uuid}
        owned = [each for each in self._memory().held.values() if each.offered]
        assert {unit.address for unit in units} <= {each.address for each in owned}
        assert len({each.card for each in owned}) == len(owned)
        self._check_offers()
        for each in owned:
            assert each.card not in held or not held[each.card].releasing, "what is released is withdrawn at once"

    def _check_offers(self) -> None:
        """What is offered is there, and nothing of it is new where containers have the card in another way."""
        offered = {
            (offer.resource, unit.id, unit.uuid) for offer in self.node.board.state.offers for unit in offer.units
        }
        names = {(resource, name) for resource, name, _ in offered}
        used = {(resource, name) for resource, ids in self.node.in_use.items() for name in ids}
        for card in self.node.hardware.survey().cards:
            there = {card.uuid, *(each.uuid for each in card.instances)}
            if card.uuid is not None:
                assert {unit.uuid for unit in self.node.units() if unit.address == card.address} <= there
            if any(uuid in there for _, _, uuid in offered - self.offered):
                assert {(resource, name) for resource, name in used if name.partition("::")[0] in there} <= names
        self.offered = offered

    async def end(self) -> None:
        """Nothing is in the way any more; everything reaches the last desired state, and stays."""
        node = self.node
        node.in_use, node.calls.fail_at = {}, None
        node.hardware.inject("recover")
        for card in node.hardware._cards.values():
            card.users.clear()
        there = {card.uuid for card in node.cards()}
        self.wishes = {name: one for name, one in self.wishes.items() if one.uuid in there}
        node.see_use()
        node.set_desired(*self.wishes.values())
        for _ in range(3):
            await node.settle(500.0)
            node.now += 70.0
        self.check()
        for index in range(CARDS):
            self._check_end(index)
        node.recorded()
        node.calls.changes.clear()
        node.restart()
        node.see_use()
        node.set_desired(*self.wishes.values())
        await node.settle(500.0)
        assert (node.recorded(), node.calls.changes) == ([], [])

    def _check_end(self, index: int) -> None:
        card, one = self.node.card(index), self.wishes.get(f"gpu-{index}")
        units = {unit.id for unit in self.node.units() if unit.address == card.address}
        state = MigState(card.mig_enabled, card.mig_pending, card.profiles, card.instances)
        if one is None or one.releasing:
            assert not units
            return
        found = plan(state, profile_of(one))
        assert isinstance(found, Plan)
        assert found.steps == ()
        uuids = unit_uuids(card, one)
        assert units == {each for uuid in uuids for each in ids_of(uuid, one.slices_per_unit)} != set()
        assert self._memory().outcomes[one.device] == Outcome(one.pool, one.asked_at, "applied", partitions(one, uuids))

    def _memory(self) -> SetupState:
        mine = self.node.setup._store
        return mine.state if mine is not None else SetupState()

    def _want(self, index: int, shape: dict[str, Any]) -> None:
        self.requests += 1
        one = later(desired(self.node, index, **shape), self.requests)
        self.wishes[one.device] = one
        self._publish_desired()

    def _drop(self, index: int) -> None:
        self.wishes.pop(f"gpu-{index}", None)
        self._publish_desired()

    def _publish_desired(self) -> None:
        self.node.set_desired(*self.wishes.values())

    def _take(self, number: int) -> None:
        pairs = [(offer.resource, unit.id) for offer in self.node.board.state.offers for unit in offer.units]
        if pairs:
            resource, unit = pairs[number % len(pairs)]
            self.node.in_use.setdefault(resource, set()).add(unit)
            self._observe_use()

    def _take_late(self, number: int) -> None:
        """The kubelet allocates a withdrawn unit, because it has no new list yet."""
        late = sorted(key for key, at in self.seen_at.items() if self.node.now - at < SETTLE_S)
        if late:
            resource, unit, uuid = late[number % len(late)]
            there = {each.uuid for card in self.node.cards() for each in (card, *card.instances)}
            assert uuid in there, "what may be given away still is there"
            self.node.in_use.setdefault(resource, set()).add(unit)
            self._observe_use()

    def _leave(self, number: int) -> None:
        pairs = [(resource, unit) for resource, ids in self.node.in_use.items() for unit in sorted(ids)]
        if pairs:
            resource, unit = pairs[number % len(pairs)]
            self.node.in_use[resource].discard(unit)
            self._observe_use()

    def _process(self, number: int) -> None:
        places = [(card.address, each.uuid) for card in self.node.cards() for each in card.instances]
        if places:
            self.node.hardware.use(*places[number % len(places)])

    def _exit(self, index: int) -> None:
        self.node.hardware._cards[self.node.card(index).address].users.clear()

    def _fail(self, number: int) -> None:
        self.node.calls.fail_at = number

    def _by_hand(self, index: int, start: int, profile: str) -> None:
        """Somebody takes an idle instance back and makes another one."""
        card = self.node.card(index)
        for each in card.instances:
            if each.start <= start < each.start + each.size and each.uuid not in self.node.used_uuids():
                self.seen_at = {key: at for key, at in self.seen_at.items() if key[2] != each.uuid}
                self._quietly(partial(self.node.hardware.destroy_instance, card.address, each.uuid))
        self._quietly(lambda: self.node.hardware.create_instance(card.address, profile, start))

    def _foreign(self, index: int) -> None:
        """Somebody else gives away a card that the agent has not offered for long."""
        card = self.node.card(index)
        there = {card.uuid, *(each.uuid for each in card.instances)}
        if not any(key[2] in there and self.node.now - at < LONG_S for key, at in self.seen_at.items()):
            self.node.in_use.setdefault("nvidia.com/gpu", set()).add(card.uuid)
            if self.node.board.state.in_use is not None:
                self._observe_use()

    def _divisible(self, index: int) -> None:
        """Somebody turns MIG on."""
        address = self.node.card(index).address
        if not self.node.used_on(address):
            self._quietly(lambda: self.node.hardware.set_mig(address, enabled=True))

    def _replace(self, index: int, number: int) -> None:
        """The machine is switched off for another card in the place of one."""
        facts = self.node.card(index)._replace(uuid=f"GPU-{number}-{index}", instances=(), mig_enabled=False)
        self.node.hardware._cards[facts.address] = SimulatedCard(facts, remaps_rows=True)
        self.node.in_use = {}
        self._restart()
        self._observe_use()
        self._publish_desired()

    def _quietly(self, change: Callable[[], object]) -> None:
        with suppress(HardwareError):
            change()

    def _unknown(self) -> None:
        self.node.board.put(in_use=None)

    def _observe_use(self) -> None:
        self.node.see_use()

    def _off(self) -> None:
        self.node.hardware.inject("off-bus@0")

    def _on(self) -> None:
        self.node.hardware.inject("recover@0")

    def _restart(self) -> None:
        self.node.restart()
        self.seen_at = {}

    def _wait(self, _seconds: float) -> None:
        """Time passes."""


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


WHOLE: Final[tuple[Any, ...]] = ("want", 0, {"pool": "p", "slices_per_unit": 1})
QUIET: Final[tuple[Any, ...]] = ("wait", 2.0)


@examples(1.5)
@example([WHOLE, QUIET, ("replace", 0, 0)])
@example([WHOLE, QUIET, ("divisible", 0)])
@example([("unknown",), WHOLE, ("foreign", 0), QUIET])
@given(st.lists(moves, max_size=40))
def test_nothing_in_use_is_touched_and_all_ends_as_desired(recorded: list[tuple[Any, ...]]) -> None:
    async def record() -> None:
        story = Story()
        for move in recorded:
            await story.do(move)
        await story.end()

    run(record())


@examples()
@given(st.lists(moves, max_size=30))
def test_no_result_is_reported_twice_in_a_row(recorded: list[tuple[Any, ...]]) -> None:
    async def record() -> None:
        story = Story()
        last: dict[str, tuple[Any, ...]] = {}
        for move in recorded:
            done = len(story.node.calls.changes)
            await story.do(move)
            for each in story.node.recorded():
                key = (*each, story.wishes[each[0]].asked_at if each[0] in story.wishes else None)
                assert last.get(each[0]) != key or len(story.node.calls.changes) > done
                last[each[0]] = key

    run(record())


wishes = st.builds(
    WantedDevice,
    device=st.text("abc", min_size=1),
    uuid=st.none() | st.just("GPU-1"),
    pool=st.text("pq", min_size=1),
    resource=st.just("r"),
    unit=st.sampled_from(["Card", "MIG"]),
    mig_profile=st.none() | st.sampled_from(PROFILES),
    slices_per_unit=st.integers(1, 64),
    releasing=st.booleans(),
    asked_at=st.just(NOON),
)
held = st.builds(
    HeldDevice, wishes, st.text("0:."), st.text("GPU-"), st.lists(st.text("MIG")).map(tuple), st.booleans()
)
outcomes = st.builds(
    Outcome,
    st.text("pq"),
    st.just(NOON),
    st.sampled_from(["applied", "refused", "released"]),
    st.none() | st.integers(0, 7),
)
memories = st.builds(SetupState, st.dictionaries(st.text(), held), st.dictionaries(st.text(), outcomes))


@given(memories)
def test_what_is_stored_comes_back(state: SetupState) -> None:
    assert load(dump(state)) == state


@given(st.binary())
def test_a_broken_value_is_rejected(kept: bytes) -> None:
    try:
        load(kept)
    except ValueError:
        return


@given(st.text("-abcdefGPU0123", min_size=1, max_size=128), st.integers(1, 64))
def test_ids_are_short_and_differ(uuid: str, slices: int) -> None:
    ids = ids_of(uuid, slices)
    assert len(set(ids)) == slices
    assert all(len(each) <= 63 for each in ids)
