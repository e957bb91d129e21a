"""Running tasks side by side until one fails, or a signal stops the process, and ending them for certain.

A task that is cancelled here has ended when the function returns: nothing goes on behind a failure.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, Final, TypeVar

CANCEL_AGAIN_S: Final = 1.0
"""How long something that was cancelled has to end before it is cancelled again."""

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Work = Coroutine[Any, Any, None]
T = TypeVar("T")
S = TypeVar("S")


async def end(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Cancel tasks and return when all have ended, whatever came of them.

    A cancellation can get lost: `asyncio.wait_for` of Python 3.11, which the NATS client uses, swallows one that
    comes with the result that it waits for. So it is repeated. Where this is itself cancelled, such as by whoever
    repeats that, the tasks end first.
    """
    pending = {task for task in tasks if not task.done()}
    for task in pending:
        if not task.cancelling():  # a second cancellation would interrupt an orderly end
            task.cancel()
    clock, cancelled = asyncio.get_running_loop().time, None
    again_at_s = clock() + CANCEL_AGAIN_S
    while pending:
        try:
            await asyncio.wait(pending, timeout=max(0.0, again_at_s - clock()))
        except asyncio.CancelledError as error:
            cancelled = error
        pending = {task for task in pending if not task.done()}
        if clock() >= again_at_s:
            again_at_s = clock() + CANCEL_AGAIN_S
            for task in pending:
                task.cancel()
    if cancelled is not None:
        raise cancelled


async def abandon(task: "asyncio.Task[Any]") -> None:
    """End a task of which nobody asks any more what it returns or raises."""
    try:
        await end([task])
    finally:
        if not task.cancelled():
            task.exception()


async def within(timeout_s: float, work: Coroutine[Any, Any, T]) -> T:
    """What the work returns if it ends in time; else it is ended, however often its cancellation gets lost.

    Raises:
        TimeoutError: it did not end in time.
    """
    task = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait([task], timeout=timeout_s)
    finally:
        await end([task])
    if not done:
        raise TimeoutError
    return task.result()


async def run_until_one_fails(works: Iterable[Work]) -> None:
    """Run all to their ends. The first failure ends the others, and is raised once they have ended."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end(tasks)


async def results_of(work: Callable[[S], Awaitable[T]], items: Iterable[S], *, at_once_max: int) -> list[T]:
    """What the work makes of each item, in their order; so many run at a time. The first failure ends the others."""
    slots = asyncio.Semaphore(at_once_max)

    async def one(item: S) -> T:
        async with slots:
            return await work(item)

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await end(tasks)


async def run_until_one_ends(*works: Work) -> None:
    """Run until one ends or fails, and end the others; raises what that one raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(tasks)
    for task in tasks:
        if task in done:
            task.result()


async def run_until_stopped(work: Work, say: Callable[[str], None], *, ending_max_s: float | None = None) -> None:
    """Run a process's work until it ends or fails, or until SIGINT or SIGTERM stops it in an orderly way.

    `say` tells the user about stopping. An end that takes longer than `ending_max_s` is interrupted.
    """
    stop = asyncio.Event()
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    await end([stopping])
    if not working.done():
        say("Stopping ...")
        working.cancel()
        await asyncio.wait((working,), timeout=ending_max_s)
        await end([working])
    try:
        await working
    except asyncio.CancelledError:
        say("Stopped.")


async def ticking(items: AsyncIterator[T], interval_s: Callable[[], float]) -> AsyncGenerator[T | None]:
    """The items as they come, and None whenever none came for `interval_s`, which is asked before each wait."""
    while True:
        following = asyncio.create_task(_next(items))
        try:
            while not (await asyncio.wait([following], timeout=interval_s()))[0]:
                yield None
        finally:
            await end([following])
        try:
            item = following.result()
        except StopAsyncIteration:
            return
        yield item


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
