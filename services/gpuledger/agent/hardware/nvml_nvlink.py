"""A card's NVLinks in NVML: the active ones, their peers, and their errors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpuledger.agent.hardware.nvml_calls import Description, Handle, Nvml
from gpuledger.agent.hardware.nvml_mig import Modes
from gpuledger.domain.pci import pci_address

TOTALS: Final = (
    "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL",
)
"""Counters over all links, on cards up to Ampere."""

PER_LINK: Final = (
    "NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY",
    "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY",
    "NVML_FI_DEV_NVLINK_ERROR_DL_CRC",
    "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS",
)
"""Counters of one link, on cards from Hopper (the first three) and Blackwell (the last) on."""

_UNKNOWN_PEERS: Final = ("0000:00:00.0", "ffffffff:ff:ff.0")
"""The peer of a link that ends nowhere, and of one to an NVSwitch, whose address the driver masks."""


class Links(NamedTuple):
    """The numbers of a card's links that are active, and of those that are not; others do not say.

    `failures` has the errors of queries that failed, by link.
    """

    active: frozenset[int]
    inactive: frozenset[int]
    failures: Mapping[int, Exception]


class CardLinks:
    """The links of one card while it stays enumerated: a survey does not query again what cannot have changed.

    A link that never reported its state does not exist, or MIG mode keeps the driver from reporting it: it is queried
    again after the mode changes. The peer of a link stays the same for as long as the link is active.
    """

    def __init__(self) -> None:
        self._mode: Modes | None = None
        self._reported: frozenset[int] = frozenset()
        self._absent: frozenset[int] = frozenset()
        self._peers: dict[int, str | None] = {}
        self._polled: Links | None = None

    def poll(self, nvml: Nvml, handle: Handle, mode: Modes | None) -> Links:
        """Whether each link is active now; `mode` is the card's MIG mode. The next `survey` need not query it again."""
        self._polled = self._query(nvml, handle, mode)
        return self._polled

    def survey(self, nvml: Nvml, handle: Handle, mode: Modes | None) -> tuple[str, ...]:
        """The PCI addresses of the active links' peers, where the driver knows them."""
        polled, self._polled = self._polled if mode == self._mode else None, None
        links = polled or self._query(nvml, handle, mode)
        self._peers = {link: peer for link, peer in self._peers.items() if link in links.active}
        found = [self._peer(nvml, handle, link) for link in sorted(links.active)]
        return tuple(address for address in found if address is not None and address not in _UNKNOWN_PEERS)

    def _query(self, nvml: Nvml, handle: Handle, mode: Modes | None) -> Links:
        if mode != self._mode:
            self._mode, self._absent = mode, frozenset()
        numbers = [link for link in range(nvml.NVML_NVLINK_MAX_LINKS) if link not in self._absent]
        failures: dict[int, Exception] = {}
        states = {link: self._state(nvml, handle, link, failures) for link in numbers}
        return Links(
            frozenset(link for link, state in states.items() if state == nvml.NVML_FEATURE_ENABLED),
            frozenset(link for link, state in states.items() if state == nvml.NVML_FEATURE_DISABLED),
            failures,
        )

    def _state(self, nvml: Nvml, handle: Handle, link: int, failures: dict[int, Exception]) -> int | None:
        description = Description(nvml)
        state: int | None = description.get(nvml.nvmlDeviceGetNvLinkState, handle, link)
        if state is not None:
            self._reported |= {link}
        elif description.failure is not None:
            failures[link] = description.failure
        elif link not in self._reported:
            self._absent |= {link}
        return state

    def _peer(self, nvml: Nvml, handle: Handle, link: int) -> str | None:
        if link in self._peers:
            return self._peers[link]
        description = Description(nvml)
        pci = description.get(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        peer = pci_address(pci.busId) if pci is not None else None
        if description.complete:
            self._peers[link] = peer
        return peer


def error_fields(nvml: Nvml, links: Iterable[int]) -> list[tuple[int, int]]:
    """The fields that count the errors of a card's links, each with its scope."""
    totals = [(getattr(nvml, name), 0) for name in TOTALS]
    return totals + [(getattr(nvml, name), link) for link in sorted(links) for name in PER_LINK]


def link_errors(numbers: Sequence[int | None]) -> int | None:
    """Errors of a card's links since the driver was loaded, from its `error_fields`; None where it has no counters.

    A card has totals, counters by link, or both of the same errors: the larger sum is the more complete one.
    """
    totals, singles = _total(numbers[: len(TOTALS)]), _total(numbers[len(TOTALS) :])
    return max((each for each in (totals, singles) if each is not None), default=None)


def _total(numbers: Sequence[int | None]) -> int | None:
    there = [number for number in numbers if number is not None]
    return sum(there) if there else None
