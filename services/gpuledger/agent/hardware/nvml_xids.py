"""Waits for the errors (XIDs) that the driver reports, through one set of NVML events for all cards.

One thread waits, for short times; between these, others may take the set away (`paused`), because neither NVML nor a
card may be released while a thread waits for it. Errors in a set that was taken away are kept.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import c_void_p, cast
from threading import Condition
from typing import Final

from gpuledger.agent.hardware.api import Xid
from gpuledger.agent.hardware.errors import HardwareError, HungError
from gpuledger.agent.hardware.nvml_calls import Handle, Nvml, code_of, translating_errors
from gpuledger.agent.hardware.nvml_cards import address_of, handle_of
from gpuledger.agent.hardware.nvml_driver import Driver

WAIT_S: Final = 0.25
"""How long one wait in NVML takes; an error ends it at once."""

PAUSED_WITHIN_S: Final = 5.0
"""A wait that has not ended so long after its time hangs in the driver."""

PENDING_MAX: Final = 1024
"""How many errors of sets that were taken away are kept; beyond that the oldest are dropped."""


class XidWatch:
    """Waits for errors of the cards that answer."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._condition = Condition()
        self._is_waiting = self._closed = False
        self._pauses = 0
        self._pending: deque[Xid] = deque(maxlen=PENDING_MAX)
        self._watched: frozenset[str] = frozenset()
        self._refused: frozenset[str] = frozenset()
        self._events: _Events | None = None

    def watch(self, addresses: frozenset[str]) -> None:
        """Wait for errors of these cards from the next wait on; at once where none was watched."""
        with self._condition:
            self._watched, self._refused = addresses, frozenset()
            begun = self._events is not None
        if not begun:
            with self.paused():
                pass

    def wait(self, timeout_s: float) -> Xid | None:
        """The next error, or None where none came in time.

        Raises:
            HardwareError: it is impossible to wait for errors at present.
        """
        left_s = timeout_s
        while not self._closed:
            if self._pending:
                return self._pending.popleft()
            xid = self._wait_once(min(WAIT_S, max(left_s, 0.0)))
            left_s -= WAIT_S
            if xid is not None or (left_s <= 0 and not self._pending):
                return xid
        return None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No thread waits in the block, and no event set exists; afterwards there is one, if the driver is there.

        Raises:
            HungError: the wait does not end.
        """
        with self._condition:
            self._pauses += 1
        try:
            with self._condition:
                if not self._condition.wait_for(lambda: not self._is_waiting, WAIT_S + PAUSED_WITHIN_S):
                    raise HungError("NVML does not come back from waiting for errors; does the driver hang?")
                self._shut_down()
            yield
            with suppress(HardwareError):  # the waiting thread gets the error
                self._register_all(self._driver.current, self._watched)
        finally:
            with self._condition:
                self._pauses -= 1
                self._condition.notify_all()

    def close(self) -> None:
        """End a wait soon, and every later one at once."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _wait_once(self, turn_s: float) -> Xid | None:
        with self._condition:
            if self._pauses:
                self._condition.wait(turn_s)
                return None
            nvml, watched = self._driver.current, self._watched
            self._is_waiting = True
        try:
            events = self._register_all(nvml, watched)
            if events is not None:
                return events.wait(turn_s)
        finally:
            with self._condition:
                self._is_waiting = False
                self._condition.notify_all()
        with self._condition:  # no card can be waited for
            self._condition.wait_for(lambda: self._closed or self._pauses, turn_s)
        return None

    def _register_all(self, nvml: Nvml, watched: frozenset[str]) -> "_Events | None":
        """A set with all cards that can be registered; a card that went away invalidates its set."""
        if self._events is not None and (self._events.broken or self._events.addresses - watched):
            self._shut_down()
        missing = watched - self._refused - (self._events.addresses if self._events is not None else frozenset())
        if missing and self._events is None:
            self._events = _Events(nvml)
        if self._events is not None:
            self._refused |= self._events.register(missing)
        return self._events if self._events is not None and self._events.addresses else None

    def _shut_down(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            self._pending.extend(events.drained())


class _Events:
    """A set of NVML events."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        with translating_errors(nvml, "Creating a set of events"):
            self._set: Handle = nvml.nvmlEventSetCreate()
        self._addresses: dict[int | None, str] = {}
        self.broken = False

    @property
    def addresses(self) -> frozenset[str]:
        """The registered cards."""
        return frozenset(self._addresses.values())

    def register(self, addresses: frozenset[str]) -> frozenset[str]:
        """Register more cards; returns those that cannot be registered."""
        return frozenset(address for address in sorted(addresses) if not self._register_one(address))

    def wait(self, timeout_s: float) -> Xid | None:
        """The next error of the set.

        Raises:
            HardwareError: the set is broken, as after a card was lost, and must be replaced.
        """
        try:
            with translating_errors(self._nvml, "Waiting for errors of the cards"):
                return self._next(timeout_s)
        except HardwareError:
            self.broken = True
            raise

    def drained(self) -> Iterator[Xid]:
        """The remaining errors of the set, at most `PENDING_MAX`, before it is freed."""
        with suppress(HardwareError):
            for _ in range(PENDING_MAX):
                xid = self.wait(0.0)
                if xid is None:
                    break
                yield xid
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlEventSetFree(self._set)

    def _register_one(self, address: str) -> bool:
        watched = self._nvml.nvmlEventTypeXidCriticalError
        try:
            card = handle_of(self._nvml, address)
            if not self._nvml.nvmlDeviceGetSupportedEventTypes(card) & watched:
                return False
            self._nvml.nvmlDeviceRegisterEvents(card, watched, self._set)
        except self._nvml.NVMLError:
            return False
        self._addresses[_handle_key(card)] = address
        return True

    def _next(self, timeout_s: float) -> Xid | None:
        try:
            data = self._nvml.nvmlEventSetWait_v2(self._set, round(timeout_s * 1000))
        except self._nvml.NVMLError as error:
            if code_of(error) == self._nvml.NVML_ERROR_TIMEOUT:
                return None
            raise
        # A card that has fallen off the bus may not even report its address any more.
        address = self._addresses.get(_handle_key(data.device)) or address_of(self._nvml, data.device)
        return Xid(address, data.eventData) if address is not None else None


def _handle_key(card: Handle) -> int | None:
    """A handle as a number, which stays the same for a card until NVML is shut down."""
    return cast(card, c_void_p).value
