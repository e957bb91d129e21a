"""Tasks that run side by side end for certain, whichever fails first, and on a signal in an orderly way."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import cast

import pytest

from gpuledger.db.engine import AsyncConnection
from gpuledger.db.locks import HeldLock, LockCheck
from gpuledger.runtime import tasks
from gpuledger.runtime.tasks import results_of, run_until_one_ends, run_until_one_fails, run_until_stopped, ticking


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


async def test_results_come_in_order_and_so_many_run_at_a_time() -> None:
    running, most = 0, 0

    async def work(item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10 - item):
            await asyncio.sleep(0)
        running -= 1
        return -item

    assert await results_of(work, range(10), at_once_max=3) == [-item for item in range(10)]
    assert most == 3


async def test_the_first_failure_ends_the_work_on_other_items() -> None:
    ended: list[int] = []

    async def work(item: int) -> None:
        if item == 1:
            raise ValueError("one")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(item)

    with pytest.raises(ValueError, match="one"):
        await results_of(work, range(5), at_once_max=2)
    assert sorted(ended) in ([0], [0, 2])


class SlowEnd:
    """Work that takes its time to end."""

    def __init__(self) -> None:
        self.may_end, self.has_ended = asyncio.Event(), False

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.has_ended = True

    async def assert_awaited_by(self, waiting: "asyncio.Task[None]") -> None:
        """Who waits for it does so to its end, though cancelled again and again, as on a busy machine."""
        for _ in range(5):
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.sleep(0)
        ended_early = waiting.done()
        self.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (ended_early, self.has_ended) == (False, True)


async def test_what_has_to_end_ends_first_where_that_is_cancelled_again_and_again() -> None:
    slow = SlowEnd()
    await slow.assert_awaited_by(asyncio.create_task(run_until_one_ends(slow.run(), asyncio.sleep(0))))


class Severed:
    """A connection that is gone already."""

    def fileno(self) -> int:
        raise OSError


async def test_what_is_done_under_a_lock_has_ended_although_its_end_is_cancelled() -> None:
    slow, held = SlowEnd(), HeldLock(cast("AsyncConnection", Severed()), "a lock", 1, LockCheck())
    await slow.assert_awaited_by(asyncio.create_task(held.within(60.0, slow.run())))


async def test_the_first_that_fails_ends_the_others_for_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_AGAIN_S", 0.01)
    turns: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        await run_until_one_ends(deaf_once(turns), fails())
    assert turns == ["missed"]


async def test_the_first_task_to_end_ends_the_others() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await run_until_one_ends(waits(), fails(), waits())
    assert ended == ["cancelled", "cancelled"]


async def test_ticks_come_between_items_and_lose_none() -> None:
    more = asyncio.Event()

    async def items() -> AsyncIterator[int]:
        yield 1
        await more.wait()
        yield 2

    seen: list[int | None] = []
    async with aclosing(ticking(items(), lambda: 0.01)) as ticks:
        async for one in ticks:
            seen.append(one)
            if seen.count(None) == 2:
                more.set()
    assert (seen[0], seen[-1]) == (1, 2)
    assert len(seen) - seen.count(None) == 2


async def test_the_first_failure_ends_the_others_and_an_end_does_not() -> None:
    turns: list[str] = []

    async def ends() -> None:
        turns.append("ended")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await run_until_one_fails([ends(), asyncio.sleep(3600), fails()])
    assert turns == ["ended"]
    await run_until_one_fails([ends(), ends()])


async def test_a_signal_stops_in_an_orderly_way(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(50):
                await asyncio.sleep(0.001)
            seen.append("orderly")

    monkeypatch.setattr(tasks, "CANCEL_AGAIN_S", 0.001)
    await run_until_stopped(work(), seen.append, ending_max_s=30.0)
    assert seen == ["Stopping ...", "orderly", "Stopped."]


async def test_an_end_that_takes_too_long_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []
    monkeypatch.setattr(tasks, "CANCEL_AGAIN_S", 0.001)
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
    await run_until_stopped(deaf_once(turns), lambda _text: None, ending_max_s=0.01)
    assert turns == ["missed"]


async def test_work_that_fails_needs_no_signal() -> None:
    seen: list[str] = []

    async def fails() -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        await run_until_stopped(fails(), seen.append)
    assert seen == []
