"""The only way from the event loop to the hardware: blocking calls in a thread, one at a time, each with a time-out.

A driver that hangs must not stop the agent: a call that times out is abandoned, and until it returns all other calls
fail at once. A second thread waits for errors of the cards. Neither thread keeps the process from ending.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, Protocol, TypeVar

from gpuledger.agent.hardware.api import NodeHardware, Readings, Survey, Unregistered, Xid
from gpuledger.agent.hardware.errors import HardwareError, HungError
from gpuledger.domain.mig.geometry import Instance

T = TypeVar("T")

XID_WAIT_S: Final = 1.0
"""How long one call waits for an error; it returns as soon as one comes."""

CLOSE_MAX_S: Final = 10.0
"""How long `close` waits for the hardware to release the driver."""


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    """How long calls may take. A driver that is not kept loaded takes seconds per card to initialise."""

    survey_s: float = 60.0
    read_s: float = 15.0
    change_s: float = 120.0


class AsyncHardware(Protocol):
    """`gpuledger.agent.hardware.api.NodeHardware` for the event loop; each call may also raise HungError."""

    @property
    def kind(self) -> str:
        """See `NodeHardware.kind`."""
        ...

    async def survey(self) -> Survey:
        """See `NodeHardware.survey`."""
        ...

    async def readings(self, address: str) -> Readings:
        """See `NodeHardware.readings`."""
        ...

    def unregistered(self) -> Mapping[str, Unregistered]:
        """See `NodeHardware.unregistered`."""
        ...

    async def users(self, address: str) -> frozenset[str]:
        """See `NodeHardware.users`."""
        ...

    async def set_mig(self, address: str, *, enabled: bool) -> bool:
        """See `NodeHardware.set_mig`."""
        ...

    async def create_instance(self, address: str, profile: str, start: int) -> Instance:
        """See `NodeHardware.create_instance`."""
        ...

    async def destroy_instance(self, address: str, uuid: str) -> None:
        """See `NodeHardware.destroy_instance`."""
        ...

    async def next_xid(self) -> Xid:
        """The next error of any card, however long that takes; cancel it to stop waiting.

        Raises:
            HardwareError: it is impossible to wait for errors at present.
        """
        ...


class HardwareCalls:
    """Makes the calls of some hardware from one event loop, and closes the hardware at its end."""

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
        """See `AsyncHardware.kind`."""
        return self._hardware.kind

    async def survey(self) -> Survey:
        """See `AsyncHardware.survey`."""
        return await self._call("Looking at the cards", self._hardware.survey, self._timeouts.survey_s)

    async def readings(self, address: str) -> Readings:
        """See `AsyncHardware.readings`."""
        reading = partial(self._hardware.readings, address)
        return await self._call(f"Reading the health of {address}", reading, self._timeouts.read_s)

    def unregistered(self) -> Mapping[str, Unregistered]:
        """See `AsyncHardware.unregistered`."""
        return self._hardware.unregistered()

    async def users(self, address: str) -> frozenset[str]:
        """See `AsyncHardware.users`."""
        looking = partial(self._hardware.users, address)
        return await self._call(f"Looking for users of {address}", looking, self._timeouts.read_s)

    async def set_mig(self, address: str, *, enabled: bool) -> bool:
        """See `AsyncHardware.set_mig`."""
        changing = partial(self._hardware.set_mig, address, enabled=enabled)
        return await self._call(f"Changing the MIG mode of {address}", changing, self._timeouts.change_s)

    async def create_instance(self, address: str, profile: str, start: int) -> Instance:
        """See `AsyncHardware.create_instance`."""
        making = partial(self._hardware.create_instance, address, profile, start)
        return await self._call(f"Making a {profile} on {address}", making, self._timeouts.change_s)

    async def destroy_instance(self, address: str, uuid: str) -> None:
        """See `AsyncHardware.destroy_instance`."""
        destroying = partial(self._hardware.destroy_instance, address, uuid)
        await self._call(f"Destroying {uuid} on {address}", destroying, self._timeouts.change_s)

    async def next_xid(self) -> Xid:
        """See `AsyncHardware.next_xid`. An error that comes after a cancellation goes to the next caller."""
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
        """Close the hardware and end both threads; a thread that hangs in the driver ends with the process."""
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
            raise HardwareError("The hardware is closed.")


class _Worker:
    """A thread that makes calls in order; unlike an executor's, it does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call; the future gets its result."""
        future: Future[T] = Future()
        self._calls.put(partial(_run_call, call, future))
        return future

    def end(self) -> None:
        """End the thread after the calls that are queued."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


async def _finished(future: "Future[Any]", timeout_s: float | None = None) -> None:
    """Wait until a call has returned, or the time is up."""
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
