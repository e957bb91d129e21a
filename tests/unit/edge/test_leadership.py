"""Attempts of a service of the edge: what is tried again soon, what stops it, and what ends the row of failures."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gpuledger.edge.leadership import RestartPolicy, Restarts
from gpuledger.runtime.backoff import Backoff, no_jitter


class PassingError(Exception):
    """It is over soon."""


class OperatorNeededError(PassingError):
    """It stays until somebody does something."""


class UnforeseenError(Exception):
    """Nobody expects it."""


BACKOFF = Backoff(first_s=1.0, max_s=8.0, healthy_after_s=1000.0)


class Attempts:
    """Attempts that each end with an error, the last one with a cancellation; pauses are noted, and last no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: Exception, stopping: type[Exception]) -> None:
        self._errors: Iterator[Exception] = iter(errors)
        policy = RestartPolicy(BACKOFF, 60.0, (PassingError,), (stopping,))
        self.restarts = Restarts("test", policy, no_jitter)
        self.pauses_s: list[float] = []
        self.ended: list[tuple[str | None, bool]] = []
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def run(self) -> None:
        with suppress(asyncio.CancelledError):
            await self.restarts.run(self._attempt, self._end)

    async def _sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)

    async def _attempt(self) -> None:
        error = next(self._errors, asyncio.CancelledError())
        if isinstance(error, OperatorNeededError):
            self.restarts.followed()
        raise error

    def _end(self) -> None:
        self.ended.append((self.restarts.problem, self.restarts.is_stopped))


async def test_pauses_grow_with_each_failure_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Attempts(monkeypatch, *(PassingError(f" {number} \n") for number in range(5)), stopping=ValueError)
    await found.run()
    assert found.pauses_s == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert found.ended == [(str(number), False) for number in range(5)]


async def test_who_has_followed_the_log_is_back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = (PassingError("a"), PassingError("b"), OperatorNeededError("c"), PassingError("d"))
    found = Attempts(monkeypatch, *errors, stopping=ValueError)
    await found.run()
    assert found.pauses_s == [1.0, 2.0, 1.0, 2.0]


async def test_what_needs_an_operator_stops_it_and_stays_the_reason_until_it_works_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = (PassingError("early"), ValueError("broken"), PassingError("away"), ValueError("worse"))
    found = Attempts(monkeypatch, *errors, stopping=ValueError)
    await found.run()
    assert found.pauses_s == [1.0, 60.0, 2.0, 60.0]
    assert found.ended == [("early", False), ("broken", True), ("broken", True), ("worse", True)]
    found.restarts.recovered()
    assert (found.restarts.problem, found.restarts.is_stopped) == (None, False)


async def test_an_error_that_nobody_foresaw_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Attempts(monkeypatch, UnforeseenError("new"), stopping=ValueError)
    with pytest.raises(UnforeseenError):
        await found.run()
    assert found.ended == []
