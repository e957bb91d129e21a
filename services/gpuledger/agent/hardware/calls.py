"""The one way from the event loop to the hardware: calls that block run in a thread, one at a time, bounded.

A driver that hangs must not stop the agent: a call that is not over in time is given up, and until it does end every
other call fails at once. Errors are waited for in a second thread. Neither thread keeps the process from ending.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, Protocol, TypeVar

from gpuledger.agent.hardware.api import NodeHardware, Readings, Survey, Xid
from gpuledger.agent.hardware.errors import HardwareError, HungError
from gpuledger.domain.mig.geometry import Instance

T = TypeVar("T")

XID_WAIT_S: Final = 1.0
"""How long the hardware is asked at once to wait for an error; it tells one as soon as it comes."""

CLOSE_MAX_S: Final = 10.0
"""How long the end waits for the hardware to let go of the driver."""


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    """How long calls may take, in seconds. A driver that nobody keeps loaded takes seconds for each card to come up."""

    survey_s: float = 60.0
    read_s: float = 15.0
    change_s: float = 120.0


class AsyncHardware(Protocol):
    """`gpuledger.agent.hardware.api.Hardware` for the event loop; each call also raises HungError."""

    @property
    def kind(self) -> str:
        """What kind of hardware this is."""
        ...

    async def survey(self) -> Survey:
        """See `Hardware.survey`."""
        ...

    async def readings(self, address: str) -> Readings:
        """See `Hardware.readings`."""
        ...

    async def users(self, address: str) -> frozenset[str]:
        """See `Hardware.users`."""
        ...

    async def set_mig(self, address: str, *, enabled: bool) -> bool:
        """See `Hardware.set_mig`."""
        ...

    async def create_instance(self, address: str, profile: str, start: int) -> Instance:
        """See `Hardware.create_instance`."""
        ...

    async def destroy_instance(self, address: str, uuid: str) -> None:
        """See `Hardware.destroy_instance`."""
        ...

    async def next_xid(self) -> Xid:
        """The next error of any card, however long it takes; to be cancelled by who waits for it no longer.

        Raises:
            HardwareError: errors cannot be waited for at the moment.
        """
        ...


class HardwareCalls:
    """`Calls` of some hardware, which it closes at its end. To be used from one event loop."""

    def __init__(self, hardware: NodeHardware, *, timeouts: CallTimeouts | None = None) -> None:
        self._hardware = hardware
        self._timeouts = timeouts or CallTimeouts()
        self._caller, self._xid_waiter = _Worker("hardware-calls"), _Worker("hardware-xids")
        self._call_lock, self._wait_lock = asyncio.Lock(), asyncio.Lock()
        self._running: Future[Any] | None = None
        self._abandoned: Future[Any] | None = None
        self._wait: Future[Xid | None] | None = None
        self._closed = False

    @property
    def kind(self) -> str:
        """See `Calls.kind`."""
        return self._hardware.kind

    async def survey(self) -> Survey:
        """See `Calls.survey`."""
        return await self._call("Looking at the cards", self._hardware.survey, self._timeouts.survey_s)

    async def readings(self, address: str) -> Readings:
        """See `Calls.readings`."""
        reading = partial(self._hardware.readings, address)
        return await self._call(f"Reading the health of {address}", reading, self._timeouts.read_s)

    async def users(self, address: str) -> frozenset[str]:
        """See `Calls.users`."""
        looking = partial(self._hardware.users, address)
        return await self._call(f"Looking for users of {address}", looking, self._timeouts.read_s)

    async def set_mig(self, address: str, *, enabled: bool) -> bool:
        """See `Calls.set_mig`."""
        changing = partial(self._hardware.set_mig, address, enabled=enabled)
        return await self._call(f"Changing the MIG mode of {address}", changing, self._timeouts.change_s)

    async def create_instance(self, address: str, profile: str, start: int) -> Instance:
        """See `Calls.create_instance`."""
        making = partial(self._hardware.create_instance, address, profile, start)
        return await self._call(f"Making a {profile} on {address}", making, self._timeouts.change_s)

    async def destroy_instance(self, address: str, uuid: str) -> None:
        """See `Calls.destroy_instance`."""
        destroying = partial(self._hardware.destroy_instance, address, uuid)
        await self._call(f"Destroying {uuid} on {address}", destroying, self._timeouts.change_s)

    async def next_xid(self) -> Xid:
        """See `Calls.next_xid`. What comes while nobody waits any more is there for the next who does."""
        async with self._wait_lock:
            while True:
                self._check_open()
                if self._wait is None:
                    self._wait = self._xid_waiter.submit(partial(self._hardware.wait_xid, XID_WAIT_S))
                await _finished(self._wait)
                done, self._wait = self._wait, None
                xid = done.result()
                if xid is not None:
                    return xid

    async def close(self) -> None:
        """Close the hardware and end both threads, soon; one that hangs in the driver is left to the process's end."""
        if self._closed:
            return
        self._closed = True
        closing = self._caller.submit(self._hardware.close)
        await _finished(closing, 0.0 if self._is_hung() else CLOSE_MAX_S)
        self._caller.end()
        self._xid_waiter.end()

    async def _call(self, what: str, call: Callable[[], T], timeout_s: float) -> T:
        async with self._call_lock:
            self._check_open()
            if self._is_hung():
                raise HungError(f"{what} was not tried: the driver has not come back from an earlier call.")
            future = self._caller.submit(call)
            try:
                await _finished(future, timeout_s)
            finally:
                if not future.cancel():  # it began, and may go on without its caller
                    self._running = future
            if not future.done() or future.cancelled():
                self._abandoned = self._running
                raise HungError(f"{what} was not over in {timeout_s:g} s. Look for the driver's complaints in dmesg.")
            return future.result()

    def _is_hung(self) -> bool:
        return self._abandoned is not None and not self._abandoned.done()

    def _check_open(self) -> None:
        if self._closed:
            raise HardwareError("The hardware was closed; nothing is asked of it any more.")


class _Worker:
    """A thread that makes calls in their order; the process ends without waiting for it, as for no executor's."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have a call made; what becomes of it stands in the future."""
        future: Future[T] = Future()
        self._calls.put(partial(_run_call, call, future))
        return future

    def end(self) -> None:
        """End after the calls that stand before."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


async def _finished(future: "Future[Any]", timeout_s: float | None = None) -> None:
    """Wait until a call is over, or the time is."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def record(_: "Future[Any]") -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(over.set)

    future.add_done_callback(record)
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await over.wait()


def _run_call(call: Callable[[], T], future: "Future[T]") -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it is the caller's, who is another thread
        future.set_exception(error)
    else:
        future.set_result(result)
