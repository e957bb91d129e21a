"""The gate before a server that answers nothing: it closes for silence alone, and any answer opens it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gpuledger.ledger import gate as rules
from gpuledger.ledger.gate import PublishGate

Wait = Callable[[float], Awaitable[bool]]


@pytest.fixture
def gate() -> PublishGate:
    return PublishGate()


def silent_for(pauses: int, gate: PublishGate, answers_to_others: int = 0) -> tuple[Wait, list[float]]:
    """An answer that comes after so many pauses, while others get theirs in the first ones; and the pauses."""
    waited: list[float] = []

    async def answered(pause_s: float) -> bool:
        waited.append(pause_s)
        if len(waited) <= answers_to_others:
            gate.open()
        return len(waited) > pauses

    return answered, waited


async def test_an_answer_in_time_leaves_it_open(gate: PublishGate) -> None:
    answered, waited = silent_for(0, gate)
    assert await gate.wait(answered, 5.0) == ""
    assert (gate.is_open, waited) == (True, [rules.SILENCE_MAX_S])


async def test_it_closes_when_nobody_is_answered(gate: PublishGate) -> None:
    answered, waited = silent_for(3, gate)
    assert await gate.wait(answered, 5.0) == "no acknowledgement"
    assert (gate.is_open, len(waited)) == (False, 1)


async def test_who_waits_while_others_are_answered_goes_on_waiting_and_does_not_close_it(gate: PublishGate) -> None:
    answered, waited = silent_for(3, gate, answers_to_others=3)
    assert await gate.wait(answered, 5.0) == ""
    assert (gate.is_open, len(waited)) == (True, 4)


async def test_a_wait_has_an_end_while_others_are_answered(gate: PublishGate) -> None:
    answered, waited = silent_for(99, gate, answers_to_others=99)
    assert await gate.wait(answered, 5.0) == "no acknowledgement"
    assert (gate.is_open, sum(waited)) == (True, 5.0)


async def test_a_time_limit_below_the_silence_holds(gate: PublishGate) -> None:
    answered, waited = silent_for(3, gate)
    await gate.wait(answered, 0.25)
    assert waited == [0.25]


async def test_one_at_a_time_has_the_turn(gate: PublishGate) -> None:
    gate.close("no leader")
    assert gate.problem == "no leader"
    async with gate.turn:
        second = asyncio.create_task(gate.turn.acquire())
        await asyncio.sleep(0)
        assert not second.done()
    assert await second
    gate.turn.release()
