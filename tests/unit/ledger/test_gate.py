"""The gate before a server that answers nothing: what is lost lapses, silence closes it, and any answer opens it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

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


class Trying:
    """Tasks that wait for their turn, each until it is let go."""

    def __init__(self, gate: PublishGate, count: int) -> None:
        self._gate = gate
        self.turns: list[int] = []
        self.passed: list[int] = []
        self.tasks = [asyncio.create_task(self._try(number)) for number in range(count)]
        self._let_go = [asyncio.Event() for _ in range(count)]

    async def _try(self, number: int) -> None:
        async with self._gate.turn() as is_our_turn:
            if is_our_turn:
                self.turns.append(number)
                await self._let_go[number].wait()
            else:
                self.passed.append(number)

    def let_go(self, number: int) -> None:
        self._let_go[number].set()


@contextmanager
def trying(gate: PublishGate, count: int) -> Iterator[Trying]:
    tasks = Trying(gate, count)
    try:
        yield tasks
    finally:
        for task in tasks.tasks:
            task.cancel()


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_at_a_time_tries_and_the_next_one_after_it(gate: PublishGate) -> None:
    gate.close("no leader")
    with trying(gate, 3) as tasks:
        await settle()
        assert tasks.turns == [0]
        tasks.let_go(0)
        await settle()
        assert (tasks.turns, tasks.passed) == ([0, 1], [])


async def test_when_it_opens_all_that_wait_go_on_at_once(gate: PublishGate) -> None:
    gate.close("no leader")
    with trying(gate, 4) as tasks:
        await settle()
        gate.open(gate.send())
        await settle()
        assert (tasks.turns, tasks.passed) == ([0], [1, 2, 3])
        tasks.let_go(0)
    async with gate.turn() as is_our_turn:
        assert not is_our_turn


async def test_who_is_cancelled_keeps_the_turn_from_nobody(gate: PublishGate) -> None:
    gate.close("no leader")
    with trying(gate, 4) as tasks:
        await settle()
        tasks.tasks[1].cancel()  # while it waits
        tasks.let_go(0)
        await asyncio.sleep(0)
        tasks.tasks[2].cancel()  # with the turn, which it does not know yet
        await settle()
        assert tasks.turns == [0, 3]
