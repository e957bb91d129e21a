"""Properties of every choice of units, and of every sequence of a kubelet's lists."""

from collections import Counter
from datetime import UTC, datetime
from itertools import combinations
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent.board import DeviceUnit
from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.kubelet.allocations import RecordedAllocations, changes
from gpuledger.agent.plugin.affinity import Affinity
from gpuledger.agent.plugin.preferred import preferred
from gpuledger.events.allocation import AllocatedDevices, AllocationObserved
from support.kubelet_parts import address, card

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Choice(NamedTuple):
    units: tuple[DeviceUnit, ...]
    cards: tuple[CardFacts, ...]
    available: list[str]
    must: list[str]
    size: int

    def made(self) -> tuple[str, ...]:
        return preferred(self.units, self.cards, self.available, self.must, self.size)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[CardFacts, ...]:
    count = draw(st.integers(1, 8))
    ends = st.sampled_from([*(address(index) for index in range(count)), "0000:c0:00.0", "0000:c1:00.0"])
    return tuple(
        card(
            index,
            numa_node=draw(st.sampled_from([None, -1, 0, 1])),
            pci_path=tuple(draw(st.lists(st.sampled_from("ab"), max_size=3))),
            nvlinks=tuple(end for end in draw(st.lists(ends, max_size=4)) if end != address(index)),
        )
        for index in range(count)
    )


@st.composite
def choices(draw: st.DrawFn) -> Choice:
    cards = draw(nodes())
    slices = draw(st.integers(1, 3))
    units = tuple(
        DeviceUnit(f"GPU-{index}::{n}", f"GPU-{index}", address(index))
        for index in range(len(cards))
        for n in range(slices)
    )
    available = draw(st.lists(st.sampled_from([unit.id for unit in units]), unique=True))
    must = draw(st.lists(st.sampled_from(available), unique=True, max_size=3)) if available else []
    return Choice(units, cards, available, must, draw(st.integers(len(must), len(available))))


@given(choices())
def test_a_choice_is_of_the_size_requested_of_what_is_there_with_what_must_be(choice: Choice) -> None:
    made = choice.made()
    assert len(made) == len(set(made)) == choice.size
    assert set(choice.must) <= set(made) <= set(choice.available)


@given(choices(), st.randoms())
def test_a_choice_does_not_depend_on_the_order_of_the_question(choice: Choice, random: Random) -> None:
    available, must, cards = list(choice.available), list(choice.must), list(choice.cards)
    for one in (available, must, cards):
        random.shuffle(one)
    assert preferred(choice.units, cards, available, must, choice.size) == choice.made()


@given(choices())
def test_a_choice_is_spread_over_as_many_cards_as_can_be(choice: Choice) -> None:
    """No unit could be given for one of a card that has two fewer: such an exchange would be the better spread."""
    address_of = {unit.id: unit.address for unit in choice.units}
    made = choice.made()
    counts = Counter(address_of[one] for one in made)
    given_up = [counts[address_of[one]] for one in made if one not in choice.must]
    left = [counts[address_of[one]] for one in choice.available if one not in made]
    assert not given_up or not left or max(given_up) - min(left) <= 1


@given(nodes())
def test_two_cards_are_the_nearest_pair(cards: tuple[CardFacts, ...]) -> None:
    units = tuple(DeviceUnit(f"GPU-{index}", f"GPU-{index}", one.address) for index, one in enumerate(cards))
    affinity = Affinity(cards)
    made = [unit.address for unit in units if unit.id in preferred(units, cards, [one.id for one in units], [], 2)]
    pairs = [affinity.between(*pair) for pair in combinations([one.address for one in cards], 2)]
    assert len(made) < 2 or affinity.between(made[0], made[1]) == max(pairs)


def allocation(subject: str, devices: tuple[str, ...]) -> AllocationObserved:
    held = (AllocatedDevices(resource="gpu.deckhouse.io/a", devices=devices),)
    return AllocationObserved(node="w1", namespace="ns", pod=subject, container="main", resources=held)


LISTS = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.sampled_from("01"), min_size=1, max_size=2).map(tuple)
).map(lambda held: {subject: allocation(subject, devices) for subject, devices in held.items()})


@given(st.sets(st.sampled_from("abcd")), st.lists(st.tuples(LISTS, st.booleans()), min_size=1))
def test_what_was_reported_is_the_last_list(
    kept: set[str], looks: list[tuple[dict[str, AllocationObserved], bool]]
) -> None:
    recorded: RecordedAllocations = dict.fromkeys(kept)
    current: dict[str, AllocationObserved | None] = dict.fromkeys(kept)
    for seen, complete in looks:
        found = changes(recorded, seen, NOON, complete=complete)
        subjects = [fact.subject for fact in found.facts]
        assert len(subjects) == len(set(subjects))
        for fact in found.facts:
            if isinstance(fact.data, AllocationObserved):
                current[fact.subject] = fact.data
            else:
                assert complete, "only a list that is whole ends anything"
                del current[fact.subject]
        recorded = found.recorded
        assert current == recorded
        assert current.items() >= seen.items()
        assert not complete or current == seen
        assert changes(recorded, seen, NOON, complete=complete).facts == (), "the same list again is no news"
