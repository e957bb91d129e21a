"""Seals are compared in the order of what they cover, however the log has them."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.seals.proof import Comparison, RecordedSeal, compare
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import Offset

SEALS = 4
LENGTH = 10


def link(position: int, log: str = "a") -> str:
    return f"{position:063x}{log}"


LINKS: Mapping[Offset, str] = {position: link(position) for position in range(1, SEALS * LENGTH + 1)}


def chain(log: str = "a") -> list[LedgerSealed]:
    """The seals of a log."""
    ends = range(LENGTH, SEALS * LENGTH + 1, LENGTH)
    return [
        LedgerSealed(
            first=end - LENGTH + 1,
            last=end,
            digest=link(end, log),
            previous=link(end - LENGTH, log) if end > LENGTH else None,
        )
        for end in ends
    ]


def recorded(seals: Sequence[LedgerSealed]) -> list[RecordedSeal]:
    return [RecordedSeal(100 + place, data) for place, data in enumerate(seals)]


@given(st.lists(st.sampled_from(chain())).map(lambda repeats: chain() + repeats).flatmap(st.permutations))
def test_seals_that_are_all_there_fit_in_any_order_and_any_number(seals: Sequence[LedgerSealed]) -> None:
    assert compare(recorded(seals), LINKS) == Comparison(SEALS * LENGTH, SEALS, link(SEALS * LENGTH), None)


@given(st.permutations(chain()), st.integers(0, SEALS - 1))
def test_a_seal_that_is_missing_is_missed_by_the_next_one(seals: Sequence[LedgerSealed], missing: int) -> None:
    left = [one for one in seals if one != chain()[missing]]
    found = compare(recorded(left), LINKS)
    if missing == SEALS - 1:
        assert found == Comparison((SEALS - 1) * LENGTH, SEALS - 1, link((SEALS - 1) * LENGTH), None)
    else:
        place = left.index(chain()[missing + 1])
        assert found.first_break == f"the seal at {100 + place} follows another seal than the one before it"


@pytest.mark.parametrize("place", range(SEALS))
def test_a_seal_of_other_messages_is_named(place: int) -> None:
    end = (place + 1) * LENGTH
    found = compare(recorded(chain()), {**LINKS, end: link(end, "b")})
    assert found.first_break == f"the messages {end - LENGTH + 1} to {end} are not those that were sealed"
    assert found.seals == SEALS


@pytest.mark.parametrize("place", range(SEALS))
def test_two_seals_of_the_same_messages_fork_the_chain(place: int) -> None:
    found = compare(recorded([*chain(), chain("b")[place]]), LINKS)
    assert "are not those that were sealed" in (found.first_break or "")


def test_a_seal_of_what_the_log_does_not_hold_does_not_fit() -> None:
    found = compare(recorded(chain()), {position: LINKS[position] for position in range(1, SEALS * LENGTH)})
    assert "are not those that were sealed" in (found.first_break or "")


@given(st.permutations([RecordedSeal(1, one, is_restored=True) for one in chain("b")] + recorded(chain())))
def test_restored_seals_prove_nothing_here(seals: Sequence[RecordedSeal]) -> None:
    assert compare(seals, LINKS) == Comparison(SEALS * LENGTH, SEALS, link(SEALS * LENGTH), None)


@given(st.integers(1, SEALS - 1), st.integers(1, SEALS - 1))
def test_a_seal_may_name_the_restored_one_that_ends_where_the_one_before_it_ends(place: int, other: int) -> None:
    """So did the first version of the service."""
    restored = [RecordedSeal(1, one, is_restored=True) for one in chain("b")]
    seals = chain()
    seals[place] = seals[place].model_copy(update={"previous": link(other * LENGTH, "b")})
    found = compare([*restored, *recorded(seals)], LINKS)
    assert found.seals == SEALS
    assert (found.first_break is None) == (place == other)


def test_a_log_without_seals() -> None:
    assert compare([], LINKS) == Comparison(0, 0, None, None)
