"""Ending tasks for certain."""

import asyncio

import pytest

from gpuledger.edge.watchers.tasks import first_of
from gpuledger.runtime import tasks


async def deaf_once(turns: list[str]) -> None:
    """Does not hear its first cancellation."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        turns.append("missed")
    await asyncio.Event().wait()


async def test_what_misses_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_AGAIN_S", 0.01)
    turns: list[str] = []
    task = asyncio.create_task(deaf_once(turns))
    await asyncio.sleep(0)
    await tasks.end([task])
    assert (turns, task.cancelled()) == (["missed"], True)


async def test_the_first_that_fails_ends_the_others_for_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_AGAIN_S", 0.01)
    turns: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        await first_of(deaf_once(turns), fails())
    assert turns == ["missed"]
