"""A set of NVML events for the errors (XIDs) of cards."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from ctypes import c_void_p, cast
from typing import Final

from gpuledger.agent.hardware.api import Unregistered, Xid
from gpuledger.agent.hardware.errors import HardwareError
from gpuledger.agent.hardware.nvml_calls import Handle, Nvml, code_of, translated, translating_errors
from gpuledger.agent.hardware.nvml_cards import address_of, handle_of

PENDING_MAX: Final = 1024
"""How many errors of sets that were taken away are kept; beyond that the oldest are dropped."""


class EventSet:
    """A set of NVML events, for one thread at a time."""

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

    def register(self, addresses: frozenset[str]) -> Mapping[str, Unregistered]:
        """Register more cards; returns those that cannot be registered, and why."""
        tried = ((address, self._register_one(address)) for address in sorted(addresses))
        return {address: why for address, why in tried if why is not None}

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

    def _register_one(self, address: str) -> Unregistered | None:
        watched = self._nvml.nvmlEventTypeXidCriticalError
        try:
            card = handle_of(self._nvml, address)
            if not self._nvml.nvmlDeviceGetSupportedEventTypes(card) & watched:
                return Unregistered("NotSupported", "The driver supports no events for errors (XIDs) of this card.")
            self._nvml.nvmlDeviceRegisterEvents(card, watched, self._set)
        except self._nvml.NVMLError as error:
            return Unregistered("Refused", str(translated(self._nvml, error, f"Registering {address} for errors")))
        self._addresses[_handle_key(card)] = address
        return None

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
