"""Reads facts about GPUs from a node's labels. It decides nothing; what does not parse is left out."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gpuledger.api.kinds import NFD_VERSION_MIN
from gpuledger.api.labels import (
    GFD_COMPUTE_MAJOR,
    GFD_COMPUTE_MINOR,
    GFD_MEMORY_MIB,
    GFD_MIG_CAPABLE,
    GFD_MIG_PREFIX,
    GFD_MIG_STRATEGY,
    GFD_PRESENT,
    GFD_PRODUCT,
    GPU_CLASSES,
    LABEL_DEVICE_COUNT,
    LABEL_DEVICE_PREFIX,
    LABEL_PRESENT,
    LABEL_TRUE,
    VENDOR_NVIDIA,
)
from gpuledger.api.mig_profile import MigProfile
from gpuledger.events.device import PROFILES_MAX
from gpuledger.events.node import PciDevice

_DEVICE = re.compile(rf"{re.escape(LABEL_DEVICE_PREFIX)}(\d{{1,4}})\.(vendor|device|class)").fullmatch
_PROFILE = re.compile(rf"{re.escape(GFD_MIG_PREFIX)}(.+)\.count").fullmatch
_PRODUCT = re.compile(r"(?P<product>.+?)(?:-MIG-(?P<profile>INVALID|[0-9][0-9a-z.+-]*))?(?:-SHARED)?").fullmatch
_HEX = re.compile(r"(?:0x)?[0-9A-Fa-f]{4,6}").fullmatch
_ADDRESS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]").fullmatch
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})").match

BIGGEST_NUMBER = 2**63 - 1

CARD_MEMORY_MIB_MAX = 2**24
"""A label with more memory than that is in bytes, as GPU Feature Discovery 0.6.0 wrote it."""

_MIB = 2**20


class PciGpus(NamedTuple):
    """The GPUs of a list of PCI devices, and how many entries are too incomplete to tell."""

    gpus: list[PciDevice]
    incomplete: int


def pci_devices(labels: Mapping[str, str]) -> list[PciDevice]:
    """The PCI devices of the labels `gpu.deckhouse.io/device.<NN>.*`, by index."""
    facts: dict[int, dict[str, str]] = {}
    for key, value in labels.items():
        match = _DEVICE(key)
        if match is not None and value:
            facts.setdefault(int(match[1]), {})[f"pci_{match[2]}"] = value
    return [PciDevice(index=index, **facts[index]) for index in sorted(facts)]


def gpus_among(devices: Iterable[PciDevice]) -> PciGpus:
    """The NVIDIA GPUs among PCI devices, with normalised ids, ordered by index."""
    gpus, incomplete = {}, 0
    for device in devices:
        vendor, kind, pci_class = (_hex(text) for text in (device.pci_vendor, device.pci_device, device.pci_class))
        if vendor and kind and pci_class and len(vendor) == len(kind) == 4:
            if vendor == VENDOR_NVIDIA and pci_class[:4] in GPU_CLASSES:
                address_text = device.pci_address or ""
                address = pci_address(address_text) if _ADDRESS(address_text) else None
                gpus[device.index] = PciDevice(
                    index=device.index, pci_vendor=vendor, pci_device=kind, pci_class=pci_class, pci_address=address
                )
        elif vendor in (VENDOR_NVIDIA, None):
            incomplete += 1
    return PciGpus([gpus[index] for index in sorted(gpus)], incomplete)


def pci_id(text: str) -> str:
    """A PCI id as NFD writes it: lower case, without `0x`."""
    return text.lower().removeprefix("0x") or text


def pci_address(text: str) -> str:
    """A PCI address as the kernel writes it: NVML's domain of eight digits has four here where they suffice."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[4:]}:{rest}" if len(domain) == 8 and domain.startswith("0000") and rest else text.lower()


def _hex(text: str | None) -> str | None:
    return pci_id(text) if text and _HEX(text) else None


def expected_devices(labels: Mapping[str, str]) -> int | None:
    """How many PCI devices the node's rule counted."""
    return _number(labels.get(LABEL_DEVICE_COUNT))


def mention_gpus(labels: Mapping[str, str]) -> bool:
    """Whether any label of a node indicates GPUs."""
    if LABEL_TRUE in (labels.get(LABEL_PRESENT), labels.get(GFD_PRESENT)) or GFD_PRODUCT in labels:
        return True
    return any(key.startswith(LABEL_DEVICE_PREFIX) for key in labels)


def hardware_facts(labels: Mapping[str, str]) -> dict[str, Any]:
    """The hardware facts in GPU Feature Discovery's labels, under the names of `Hardware`.

    With the MIG strategy `single` the labels describe one instance: the product carries its profile, or `INVALID` where
    the instances differ, and the memory is not the card's.
    """
    match = _PRODUCT(labels.get(GFD_PRODUCT, ""))
    describes_instance = match is not None and match["profile"] is not None
    facts: dict[str, Any] = {
        "product": match["product"] if match else None,
        "memory_mib": None if describes_instance else _memory_mib(labels.get(GFD_MEMORY_MIB)),
        "compute_major": _number(labels.get(GFD_COMPUTE_MAJOR)),
        "compute_minor": _number(labels.get(GFD_COMPUTE_MINOR)),
    }
    if GFD_MIG_CAPABLE in labels or GFD_MIG_STRATEGY in labels:
        written = [found[1] for key in labels if (found := _PROFILE(key))]
        written += [match["profile"]] if match and match["profile"] else []
        profiles = {str(profile) for profile in map(MigProfile.of_resource, written) if profile is not None}
        capable = labels.get(GFD_MIG_CAPABLE)
        facts["mig_capable"] = None if capable is None else capable == LABEL_TRUE
        facts["mig_strategy"] = labels.get(GFD_MIG_STRATEGY) or None
        facts["mig_profiles"] = sorted(profiles)[:PROFILES_MAX] or None
    return {name: value for name, value in facts.items() if value is not None}


def _memory_mib(text: str | None) -> int | None:
    """A card's memory; a driver that does not tell it gives 0."""
    number = _number(text) or None
    return number // _MIB if number is not None and number > CARD_MEMORY_MIB_MAX else number


def is_new_enough(nfd_version: str | None) -> bool:
    """Whether a version of Node Feature Discovery is new enough; an unknown one is."""
    match = _VERSION(nfd_version or "")
    return match is None or (int(match[1]), int(match[2])) >= NFD_VERSION_MIN


def _number(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19:
        return None
    return min(int(text), BIGGEST_NUMBER)
