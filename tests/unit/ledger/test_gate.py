"""The gate before a server that answers nothing: what is lost lapses, silence closes it, and any answer opens it."""

import pytest

from gpuledger.ledger.gate import NO_ANSWER, PublishGate
from support.waiting import eventually


class Waiting:
    def __init__(self, gate: PublishGate) -> None:
        self.last_number = gate.send()
        self.problem = ""

    def lapse(self, problem: str) -> None:
        self.problem = problem


@pytest.fixture
def gate() -> PublishGate:
    return PublishGate(3_600.0)


async def test_silence_closes_it_and_whatever_waits_since_then_lapses(gate: PublishGate) -> None:
    earlier = Waiting(gate)
    with gate.watching(earlier):
        later = Waiting(gate)
        with gate.watching(later):
            gate.check()
    assert (earlier.problem, later.problem) == (NO_ANSWER, "")
    assert not gate.is_open
    gate.open(later.last_number)
    assert gate.is_open


async def test_who_waits_behind_others_that_are_answered_goes_on_waiting(gate: PublishGate) -> None:
    others = [gate.send() for _ in range(9)]
    ours = Waiting(gate)
    with gate.watching(ours):
        for number in others:
            gate.open(number)
            gate.check()
    assert (gate.is_open, ours.problem) == (True, "")


async def test_what_was_sent_later_and_answered_long_ago_shows_that_ours_is_lost(gate: PublishGate) -> None:
    """Repeats are answered ahead of what is still being recorded, so one check is not enough."""
    ours = Waiting(gate)
    with gate.watching(ours):
        gate.open(gate.send())
        gate.check()
        assert not ours.problem
        gate.open(gate.send())
        gate.check()
    assert (gate.is_open, ours.problem) == (True, NO_ANSWER)


async def test_what_is_not_sent_yet_does_not_lapse(gate: PublishGate) -> None:
    ours = Waiting(gate)
    ours.last_number = 0
    with gate.watching(ours):
        gate.check()
        gate.check()
    assert (gate.is_open, ours.problem) == (True, "")


async def test_a_refusal_for_everybody_has_everything_lapse_once(gate: PublishGate) -> None:
    ours, another = Waiting(gate), Waiting(gate)
    with gate.watching(ours):
        gate.close("no leader")
        with gate.watching(another):
            gate.close("no leader")
    assert (ours.problem, another.problem, gate.problem) == ("no leader", "", "no leader")


async def test_it_looks_by_itself_while_something_waits() -> None:
    gate = PublishGate(0.01)
    ours = Waiting(gate)

    async def has_lapsed() -> bool:
        return ours.problem == NO_ANSWER

    with gate.watching(ours):
        await eventually(has_lapsed)
    assert not gate.is_open
