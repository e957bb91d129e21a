"""A card's NVLinks in NVML: the active ones, their peers, and their errors."""

from typing import Final, NamedTuple

from gpuledger.agent.hardware.nvml_calls import Handle, Nvml, describing, number_of, optional
from gpuledger.agent.hardware.sysfs import pci_address

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
    """The numbers of a card's links that are active, and of those that are not; others do not say."""

    active: frozenset[int]
    inactive: frozenset[int]


def links_of(nvml: Nvml, handle: Handle) -> Links:
    """Whether each link of a card is active."""
    states = {link: _state(nvml, handle, link) for link in range(nvml.NVML_NVLINK_MAX_LINKS)}
    return Links(
        frozenset(link for link, state in states.items() if state == nvml.NVML_FEATURE_ENABLED),
        frozenset(link for link, state in states.items() if state == nvml.NVML_FEATURE_DISABLED),
    )


def link_peers(nvml: Nvml, handle: Handle) -> tuple[str, ...]:
    """The PCI addresses of the active links' peers, where the driver knows them."""
    found = (_peer(nvml, handle, link) for link in sorted(links_of(nvml, handle).active))
    return tuple(address for address in found if address is not None)


def link_errors(nvml: Nvml, handle: Handle, links: tuple[int, ...]) -> int | None:
    """Errors of a card's links since the driver was loaded; None where the card has no counters.

    A card has totals, counters by link, or both of the same errors: the larger sum is the more complete one.
    """
    per_link = [(getattr(nvml, name), link) for link in links for name in PER_LINK]
    fields = [(getattr(nvml, name), 0) for name in TOTALS] + per_link
    values = optional(nvml, nvml.nvmlDeviceGetFieldValues, handle, fields) if links else None
    if values is None:
        return None
    numbers = [number_of(nvml, value) for value in values]
    totals, singles = _total(numbers[: len(TOTALS)]), _total(numbers[len(TOTALS) :])
    return max((each for each in (totals, singles) if each is not None), default=None)


def _total(numbers: list[int | None]) -> int | None:
    there = [number for number in numbers if number is not None]
    return sum(there) if there else None


def _state(nvml: Nvml, handle: Handle, link: int) -> int | None:
    state: int | None = describing(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link)
    return state


def _peer(nvml: Nvml, handle: Handle, link: int) -> str | None:
    pci = describing(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    address = pci_address(pci.busId) if pci is not None else None
    return None if address in _UNKNOWN_PEERS else address
