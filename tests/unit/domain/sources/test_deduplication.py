"""The numbers seen of a source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.sources.deduplication import (
    EPOCHS_MAX,
    HOLES_MAX,
    HOLES_OF_SOURCE_MAX,
    HolesError,
    Numbers,
    Seen,
)
from gpuledger.domain.sources.leader_epochs import head_after, leader_epoch
from gpuledger.events.position import Position


@given(st.lists(st.integers(1, 60)))
def test_equals_a_plain_set(numbers: list[int]) -> None:
    seen, model = Numbers(), set[int]()
    for number in numbers:
        assert seen.add(number) == (number not in model)
        model.add(number)
    assert {number for number in range(70) if number in seen} == model
    holes = {number for first, last in seen.holes for number in range(first, last + 1)}
    assert holes == set(range(1, seen.last + 1)) - model
    assert all(one[1] + 1 < other[0] for one, other in zip(seen.holes, seen.holes[1:], strict=False))


@given(st.lists(st.integers(1, 40)), st.integers(1, 45))
def test_opens_hole_predicts_whether_a_hole_will_open(numbers: list[int], number: int) -> None:
    seen = Numbers()
    for earlier in numbers:
        seen.add(earlier)
    before, opens = len(seen.holes), seen.opens_hole(number)
    seen.add(number)
    assert opens == (len(seen.holes) > before)


@given(st.permutations(range(1, 30)))
def test_any_order_closes_up(numbers: list[int]) -> None:
    seen = Numbers()
    for number in numbers:
        seen.add(number)
    assert seen == Numbers(29)


def test_a_loss_costs_one_hole_however_much_follows() -> None:
    seen = Numbers()
    for number in (1, 2, *range(4, 10_000)):
        seen.add(number)
    assert (seen.last, seen.holes) == (9_999, [(3, 3)])


def test_what_would_leave_too_many_holes_is_not_noted() -> None:
    seen = Seen({("/nodes/a/agent", "e"): Numbers(2 * HOLES_MAX, [(n, n) for n in range(1, 2 * HOLES_MAX, 2)])})
    with pytest.raises(HolesError, match="begin a new epoch"):
        seen.add("/nodes/a/agent", "e", 2 * HOLES_MAX + 2)
    assert seen.take_changes() == []
    assert not seen.add("/nodes/a/agent", "e", 2)
    assert seen.add("/nodes/a/agent", "e", 1)
    assert seen.add("/nodes/a/agent", "e", 2 * HOLES_MAX + 2)


def test_changes_are_reported_once() -> None:
    seen = Seen()
    assert seen.add("/nodes/a/agent", "e", 2)
    assert not seen.add("/nodes/a/agent", "e", 2)
    assert seen.take_changes() == [("/nodes/a/agent", "e", 2, [(1, 1)], 1)]
    assert seen.take_changes() == []


def test_the_epochs_of_a_hostile_agent_are_not_kept_beyond_the_bound() -> None:
    seen, written = Seen(), dict[tuple[str, str], int]()
    for number in range(100_000):
        assert seen.add("/nodes/a/agent", f"e{number}", 1)
        if number % 1_500 == 0:
            write(seen, written)
            assert len(seen.numbers) <= EPOCHS_MAX
    write(seen, written)
    assert list(seen.numbers) == [("/nodes/a/agent", f"e{number}") for number in range(99_000, 100_000)]
    assert sorted(written, key=written.__getitem__) == list(seen.numbers)
    assert not seen.add("/nodes/a/agent", "e99000", 1)


def write(seen: Seen, written: dict[tuple[str, str], int]) -> None:
    """Do as the store does: delete what is forgotten, then insert what is new."""
    for key in seen.take_forgotten():
        written.pop(key, None)
    for change in seen.take_changes():
        written.setdefault((change.source, change.epoch), change.began)


def test_an_epoch_that_was_forgotten_begins_again_as_the_newest() -> None:
    seen, written = Seen(), dict[tuple[str, str], int]()
    for number in range(EPOCHS_MAX):
        seen.add("/nodes/a/agent", f"e{number}", 1)
    write(seen, written)
    for epoch in ("new", "e0"):
        assert seen.add("/nodes/a/agent", epoch, 1)
    write(seen, written)
    assert sorted(written, key=written.__getitem__) == list(seen.numbers)
    assert list(seen.numbers)[-1] == ("/nodes/a/agent", "e0")


def test_the_order_of_epochs_survives_a_restart() -> None:
    seen, written = Seen(), dict[tuple[str, str], int]()
    for number in reversed(range(EPOCHS_MAX)):
        seen.add("/nodes/a/agent", f"e{number}", 1)
    write(seen, written)
    again = Seen({key: Numbers(1) for key in sorted(written, key=written.__getitem__)}, max(written.values()))
    for one in (seen, again):
        one.add("/nodes/a/agent", "new", 1)
    assert list(again.numbers) == list(seen.numbers)
    assert ("/nodes/a/agent", f"e{EPOCHS_MAX - 1}") not in again.numbers


def test_the_epochs_of_imports_are_all_kept() -> None:
    """An epoch is the digest of its files, and importing them again must add nothing."""
    seen = Seen()
    for number in range(2 * EPOCHS_MAX):
        seen.add("/import/titan", f"e{number}", 1)
    assert not seen.add("/import/titan", "e0", 1)


POOLS = "/services/pools"


def lead(seen: Seen, leaders: int, first: int = 0) -> None:
    for head in range(first, first + leaders):
        assert seen.add(POOLS, leader_epoch(Position(1, 10 * head), f"l{head}"), 1)
        assert seen.add(POOLS, leader_epoch(Position(1, 10 * head), f"l{head}"), 2)


def test_of_a_thousand_leaders_only_the_last_one_costs_anything() -> None:
    seen, written = Seen(), dict[tuple[str, str], int]()
    for first in range(0, 1_000, 100):
        lead(seen, 100, first)
        write(seen, written)
        assert list(seen.numbers) == list(written)
    assert list(seen.numbers) == [(POOLS, "1/9990/l999")]


@pytest.mark.parametrize("late", ["1/30/l3", "1/20/l2", "1/40/tied", "1/39/never-seen"])
@pytest.mark.parametrize("number", [1, 2, 3, 9])
def test_what_comes_late_of_a_closed_epoch_is_a_repeat_before_and_after_a_restart(late: str, number: int) -> None:
    seen = Seen()
    lead(seen, 5)
    for one in (seen, Seen(seen.numbers, began=5)):
        assert not one.add(POOLS, late, number)
        assert list(one.numbers) == [(POOLS, "1/40/l4")]
    assert seen.add(POOLS, "1/40/l4", 3)


@pytest.mark.parametrize("heads", [(10, 20, 30), (30, 10, 20), (20, 30, 30)])
def test_what_a_build_that_closes_no_epochs_kept_is_closed_when_it_is_read(heads: tuple[int, ...]) -> None:
    epochs = [leader_epoch(Position(1, head), f"l{number}") for number, head in enumerate(heads)]
    seen = Seen({(POOLS, epoch): Numbers(3, [(2, 2)]) for epoch in epochs}, began=len(heads))
    last = epochs[heads.index(30)]
    assert list(seen.numbers) == [(POOLS, last)]
    assert set(seen.take_forgotten()) == {(POOLS, epoch) for epoch in epochs if epoch != last}
    assert not any(seen.add(POOLS, epoch, 4) for epoch in epochs if epoch != last)
    assert seen.add(POOLS, last, 4)


def test_a_restored_log_goes_on_with_leaders_of_its_own_generation() -> None:
    seen = Seen()
    lead(seen, 5)
    assert seen.add(POOLS, leader_epoch(Position(2, 7), "l"), 1)
    assert not seen.add(POOLS, "1/40/l4", 3)


@pytest.mark.parametrize(
    ("last", "head", "following"),
    [
        (None, (1, 9), (1, 9)),
        ((1, 5), (1, 9), (1, 9)),
        ((1, 9), (2, 9), (2, 9)),
        ((2, 5), (1, 9), (2, 9)),
        ((3, 8), (2, 9), (3, 9)),
    ],
)
def test_a_leader_comes_behind_the_last_one_of_a_later_generation(
    last: tuple[int, int] | None, head: tuple[int, int], following: tuple[int, int]
) -> None:
    """Which an import into an empty ledger restores."""
    seen = Seen()
    if last is not None:
        assert seen.add(POOLS, leader_epoch(Position(*last), "before"), 1)
    found = head_after(seen.last_leader(POOLS), Position(*head))
    assert found == Position(*following)
    assert seen.add(POOLS, leader_epoch(found, "now"), 1)


def test_only_epochs_of_leaders_close_and_are_closed() -> None:
    """Incidents, leaders of earlier builds, and what looks like a leader's epoch elsewhere are kept."""
    seen, kept = Seen(), [(POOLS, "taken/1"), (POOLS, "0123abc"), ("/watchers/nodes", "1/5/w"), (AGENT, "1/5/a")]
    for source, epoch in kept:
        assert seen.add(source, epoch, 1)
    lead(seen, 5)
    for source, epoch in [
        *kept,
        (POOLS, "taken/2"),
        (POOLS, "4567def"),
        ("/watchers/nodes", "1/4/w"),
        (AGENT, "1/4/a"),
    ]:
        assert seen.add(source, epoch, 2)
    assert not seen.add(POOLS, "0123abc", 2)


AGENT = "/nodes/a/agent"


def with_holes(epochs: int) -> Seen:
    """Epochs of an agent that lack as many ranges as they may."""
    seen = Seen()
    for epoch in range(epochs):
        for number in range(2, 2 * HOLES_MAX + 1, 2):
            seen.add(AGENT, f"e{epoch}", number)
    return seen


def test_all_epochs_of_an_agent_together_cannot_leave_more_holes_than_there_may_be() -> None:
    seen = with_holes(HOLES_OF_SOURCE_MAX // HOLES_MAX)
    again = Seen({key: Numbers(one.last, one.holes) for key, one in seen.numbers.items()})
    for one in (seen, again):
        with pytest.raises(HolesError, match="without holes"):
            one.add(AGENT, "new", 2)
        assert (AGENT, "new") not in one.numbers
        assert one.add(AGENT, "new", 1)
        assert one.add(AGENT, "e0", 1)
        assert one.add(AGENT, "new", 3)
        with pytest.raises(HolesError):
            one.add(AGENT, "new", 5)
        assert one.add("/nodes/b/agent", "e", 2)
    assert all(change.epoch != "e1" for change in again.take_changes())


def test_holes_of_a_forgotten_epoch_count_no_more() -> None:
    seen = with_holes(HOLES_OF_SOURCE_MAX // HOLES_MAX)
    for number in range(EPOCHS_MAX - 1):
        seen.add(AGENT, f"later{number}", 1)
    assert (AGENT, "e0") not in seen.numbers
    assert seen.add(AGENT, "later0", 3)
