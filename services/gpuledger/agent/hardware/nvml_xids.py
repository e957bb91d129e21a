"""Waits for the errors (XIDs) that the driver reports, through one set of NVML events for all cards.

One thread waits, for short times; between these, others may take the set away (`paused`), because neither NVML nor a
card may be released while a thread waits for it. Errors in a set that was taken away are kept. A card that the driver
refuses to register is tried again after ever more surveys, and `unregistered` says why.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from threading import Condition
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import Unregistered, Xid
from gpuledger.agent.hardware.errors import DriverMissingError, HardwareError, HungError
from gpuledger.agent.hardware.nvml_calls import Nvml
from gpuledger.agent.hardware.nvml_driver import Driver
from gpuledger.agent.hardware.nvml_events import PENDING_MAX, EventSet

WAIT_S: Final = 0.25
"""How long one wait in NVML takes; an error ends it at once."""

PAUSED_WITHIN_S: Final = 5.0
"""A wait that has not ended so long after its time hangs in the driver."""

RETRY_SURVEYS_MAX: Final = 12
"""A refused card is tried again after 1, 2, 4 ... surveys, and after so many at most: every minute."""

FAILED_WAITS_MAX: Final = 2
"""A wait that fails so often in a row reports no errors; one alone fails whenever a card is lost."""


class Refusal(NamedTuple):
    """Why a card is not registered, how often that was tried, and after how many surveys it is tried again."""

    why: Unregistered
    attempts: int
    surveys: int


class XidWatch:
    """Waits for errors of the cards that answer. `unregistered` are those that it cannot wait for, by address."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._condition = Condition()
        self._is_waiting = self._closed = False
        self._pauses = 0
        self._pending: deque[Xid] = deque(maxlen=PENDING_MAX)
        self._watched: frozenset[str] = frozenset()
        self._refusals: Mapping[str, Refusal] = {}
        self._failed_waits: tuple[str, ...] = ()
        self._events: EventSet | None = None
        self.unregistered: Mapping[str, Unregistered] = {}

    def watch(self, addresses: frozenset[str]) -> None:
        """Wait for errors of these cards from the next wait on; at once where none was watched."""
        with self._condition:
            self._watched = addresses
            refusals = {address: one for address, one in self._refusals.items() if address in addresses}
            self._refusals = {address: one._replace(surveys=one.surveys - 1) for address, one in refusals.items()}
            begun = self._events is not None
        self._publish()
        if not begun:
            with self.paused():
                pass

    def forget_refusals(self) -> None:
        """Try every card again: the driver may be another one."""
        with self._condition:
            self._refusals, self._failed_waits = {}, ()
        self._publish()

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
            with suppress(HardwareError):  # `unregistered` shows why
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
                return self._wait_for(events, turn_s)
        finally:
            with self._condition:
                self._is_waiting = False
                self._condition.notify_all()
        with self._condition:  # no card can be waited for
            self._condition.wait_for(lambda: self._closed or self._pauses, turn_s)
        return None

    def _wait_for(self, events: EventSet, turn_s: float) -> Xid | None:
        try:
            xid = events.wait(turn_s)
        except HardwareError as error:
            self._failed_waits = (*self._failed_waits, str(error))[-FAILED_WAITS_MAX:]
            self._publish()
            raise
        if self._failed_waits:
            self._failed_waits = ()
            self._publish()
        return xid

    def _register_all(self, nvml: Nvml, watched: frozenset[str]) -> EventSet | None:
        """A set with all cards that can be registered; a card that went away invalidates its set."""
        if self._events is not None and (self._events.broken or self._events.addresses - watched):
            self._shut_down()
        registered = self._events.addresses if self._events is not None else frozenset()
        due = watched - registered - {address for address, one in self._refusals.items() if one.surveys > 0}
        if due:
            self._register(nvml, due)
        return self._events if self._events is not None and self._events.addresses else None

    def _register(self, nvml: Nvml, due: frozenset[str]) -> None:
        """Register cards; those that are refused are tried again after twice as many surveys as the last time."""
        try:
            self._events = self._events or EventSet(nvml)
            refused = self._events.register(due)
        except DriverMissingError:
            raise
        except HardwareError as error:
            self._refuse(due, dict.fromkeys(due, Unregistered("Refused", str(error))))
            raise
        self._refuse(due, refused)

    def _refuse(self, due: Set[str], refused: Mapping[str, Unregistered]) -> None:
        with self._condition:
            others = {address: one for address, one in self._refusals.items() if address not in due}
            again = {address: self._refusal(address, why) for address, why in refused.items()}
            self._refusals = others | again
        self._publish()

    def _refusal(self, address: str, why: Unregistered) -> Refusal:
        before = self._refusals.get(address)
        attempts = before.attempts + 1 if before is not None else 1
        return Refusal(why, attempts, min(2 ** min(attempts - 1, RETRY_SURVEYS_MAX), RETRY_SURVEYS_MAX))

    def _publish(self) -> None:
        """Show which cards cannot be waited for, as one value that other threads may read."""
        with self._condition:
            failed = self._failed_waits if len(self._failed_waits) >= FAILED_WAITS_MAX else ()
            waits = dict.fromkeys(self._watched, Unregistered("Refused", failed[-1])) if failed else {}
            refused = {address: one.why for address, one in self._refusals.items()}
            self.unregistered = dict(sorted((waits | refused).items()))

    def _shut_down(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            self._pending.extend(events.drained())
