"""Makes the event that records a node's cards from a survey. Pure.

Drivers report odd values: empty serial numbers, endless names, bytes that are no text. None of them may make an event
that cannot be decoded, because that would hide all cards of the node. A value that does not fit is cut or left out,
with a warning.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from gpuledger.agent.hardware.api import CardFacts, NicFacts, Survey
from gpuledger.domain.mig.geometry import Instance
from gpuledger.events.device import (
    LINKS_MAX,
    MIG_INSTANCES_MAX,
    PCI_PATH_MAX,
    PROFILES_MAX,
    Card,
    MigInstance,
    Minor,
    PciAddress,
    PciClass,
    PciId,
    Uuid,
)
from gpuledger.events.node import CARDS_PER_NODE_MAX, NodeDevicesObserved
from gpuledger.events.node_sharing import FUNCTIONS_PER_NIC_MAX, NICS_PER_NODE_MAX, Nic, NodeNicsObserved
from gpuledger.events.payload import NAME_LENGTH_MAX, Count

T = TypeVar("T")

Warn = Callable[[str], object]
"""Takes a sentence about a value that was cut or left out."""


def survey_event(survey: Survey, warn: Warn) -> NodeDevicesObserved:
    """The event; warns of each value that it cannot hold as it is."""
    cards = [card for card in (_card(facts, warn) for facts in survey.cards) if card is not None]
    return NodeDevicesObserved(
        cards=_first(cards, CARDS_PER_NODE_MAX, "cards", warn),
        driver_version=_name(survey.driver_version, "driver version", warn),
        cuda_version=_name(survey.cuda_version, "CUDA version", warn),
        driver_missing=survey.driver_missing,
    )


def nics_event(nics: Sequence[NicFacts], warn: Warn) -> NodeNicsObserved:
    """The event of a node's NICs; warns of each value that it cannot hold as it is."""
    found = [nic for nic in (_nic(facts, warn) for facts in nics) if nic is not None]
    return NodeNicsObserved(nics=_first(found, NICS_PER_NODE_MAX, "NICs", warn))


def _nic(facts: NicFacts, warn: Warn) -> Nic | None:
    place = _fitting(PciAddress, facts.address, "PCI address", warn)
    name = _name(facts.name, f"name of {place}", warn)
    if place is None or name is None:
        return None
    fitting = (_fitting(PciAddress, each, f"virtual function of {place}", warn) for each in facts.functions)
    functions = [each for each in fitting if each is not None]
    path = _names(facts.pci_path, f"PCI path of {place}", warn)
    return Nic(
        name=name,
        pci_address=place,
        active=facts.active,
        numa_node=_fitting(Count, facts.numa_node, f"NUMA node of {place}", warn),
        socket=_fitting(Count, facts.socket, f"processor of {place}", warn),
        pci_path=_first(path, PCI_PATH_MAX, f"PCI path of {place}", warn),
        functions=_first(functions, FUNCTIONS_PER_NIC_MAX, f"virtual functions of {place}", warn),
    )


def _card(facts: CardFacts, warn: Warn) -> Card | None:
    place = _fitting(PciAddress, facts.address, "PCI address", warn)
    vendor = _fitting(PciId, facts.pci_vendor, f"PCI vendor of {place}", warn)
    device = _fitting(PciId, facts.pci_device, f"PCI device of {place}", warn)
    if place is None or vendor is None or device is None:
        warn(f"The card at {facts.address!a:.100} cannot be recorded: its address or its PCI ids are invalid.")
        return None
    major, minor = facts.compute or (None, None)
    profiles = dict.fromkeys(_names((profile.name for profile in facts.profiles), f"MIG profiles of {place}", warn))
    path = _names(facts.pci_path, f"PCI path of {place}", warn)
    peers = _names(facts.nvlinks, f"NVLinks of {place}", warn)
    return Card(
        uuid=_fitting(Uuid, facts.uuid, f"UUID of {place}", warn),
        serial=_name(facts.serial, f"serial number of {place}", warn),
        pci_address=place,
        pci_vendor=vendor,
        pci_device=device,
        pci_class=_fitting(PciClass, facts.pci_class, f"PCI class of {place}", warn),
        product=_name(facts.product, f"product of {place}", warn),
        memory_mib=_fitting(Count, facts.memory_mib, f"memory of {place}", warn),
        compute_major=_fitting(Count, major, f"compute capability of {place}", warn),
        compute_minor=_fitting(Count, minor, f"compute capability of {place}", warn),
        mig_capable=_mig_capable(facts),
        mig_profiles=_first(list(profiles), PROFILES_MAX, f"MIG profiles of {place}", warn) or None,
        numa_node=_fitting(Count, facts.numa_node, f"NUMA node of {place}", warn),
        socket=_fitting(Count, facts.socket, f"processor of {place}", warn),
        minor=_fitting(Minor, facts.minor, f"minor number of {place}", warn),
        module_id=_fitting(Count, facts.module_id, f"module of {place}", warn),
        pci_path=_first(path, PCI_PATH_MAX, f"PCI path of {place}", warn),
        nvlink_peers=_first(peers, LINKS_MAX, f"NVLinks of {place}", warn),
        mig_enabled=facts.mig_enabled,
        mig_instances=_instances(facts.instances, place, warn),
    )


def _mig_capable(facts: CardFacts) -> bool | None:
    """Whether the card has MIG; None where it has not shown its properties."""
    if facts.mig_enabled is not None or facts.profiles:
        return True
    return None if facts.uuid is None or facts.compute is None else False


def _instances(instances: Iterable[Instance], place: str, warn: Warn) -> tuple[MigInstance, ...]:
    fitting = []
    for instance in instances:
        uuid = _fitting(Uuid, instance.uuid, f"MIG instance of {place}", warn)
        profile = _name(instance.profile, f"profile of a MIG instance of {place}", warn)
        start = _fitting(Count, instance.start, f"place of a MIG instance of {place}", warn)
        if uuid is not None and profile is not None and start is not None:
            fitting.append(MigInstance(uuid=uuid, profile=profile, start=start))
    return _first(fitting, MIG_INSTANCES_MAX, f"MIG instances of {place}", warn)


def _names(texts: Iterable[str], what: str, warn: Warn) -> list[str]:
    return [name for name in (_name(text, what, warn) for text in texts) if name is not None]


def _name(text: str | None, what: str, warn: Warn) -> str | None:
    """The printable part of a text, as long as a name may be; None where nothing is left."""
    if text is None:
        return None
    plain = "".join(letter if letter.isprintable() else " " for letter in text).strip()[:NAME_LENGTH_MAX].strip()
    if plain != text or not plain:
        warn(f"The {what} is odd, and recorded as {plain[:80]!a}." if plain else f"The {what} is empty, and left out.")
    return plain or None


def _fitting(kind: Any, value: Any, what: str, warn: Warn) -> Any:  # noqa: ANN401 - the kind says what it is
    """The value if it fits the type, else None."""
    if value is None:
        return None
    try:
        return _adapter(kind).validate_python(value, strict=True)
    except ValidationError:
        warn(f"The {what} is odd, and left out: {value!a:.100}.")
        return None


@lru_cache(maxsize=16)
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - as above
    return TypeAdapter(kind)


def _first(values: Sequence[T], length_max: int, what: str, warn: Warn) -> tuple[T, ...]:
    if len(values) > length_max:
        warn(f"Of {len(values)} {what} only the first {length_max} are recorded.")
    return tuple(values[:length_max])
