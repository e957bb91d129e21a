"""The event that tells of a node's cards, made of a survey. Pure.

Drivers say odd things: empty serial numbers, names that never end, bytes that are no text. Nothing of it may make an
event that cannot be decoded, because that would hide all cards of the node. What does not fit is cut or left out, and
noted.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from gpuledger.agent.hardware.api import CardFacts, Survey
from gpuledger.domain.mig.geometry import Instance
from gpuledger.events.device import (
    LINKS_MAX,
    MIG_INSTANCES_MAX,
    PCI_PATH_MAX,
    PROFILES_MAX,
    Card,
    MigInstance,
    PciAddress,
    PciClass,
    PciId,
    Uuid,
)
from gpuledger.events.node import CARDS_PER_NODE_MAX, NodeDevicesObserved
from gpuledger.events.payload import NAME_LENGTH_MAX, Count

T = TypeVar("T")

Note = Callable[[str], object]
"""Takes a sentence about something that was cut or left out."""


def survey_event(survey: Survey, note: Note) -> NodeDevicesObserved:
    """The event; everything that it could not say as it was is noted."""
    cards = [card for card in (_card(facts, note) for facts in survey.cards) if card is not None]
    return NodeDevicesObserved(
        cards=_first(cards, CARDS_PER_NODE_MAX, "cards", note),
        driver_version=_name(survey.driver_version, "driver version", note),
        cuda_version=_name(survey.cuda_version, "CUDA version", note),
        driver_missing=survey.driver_missing,
    )


def _card(facts: CardFacts, note: Note) -> Card | None:
    place = _fitting(PciAddress, facts.address, "PCI address", note)
    vendor = _fitting(PciId, facts.pci_vendor, f"PCI vendor of {place}", note)
    device = _fitting(PciId, facts.pci_device, f"PCI device of {place}", note)
    if place is None or vendor is None or device is None:
        note(f"The card at {facts.address!a:.100} cannot be told of: its place or its PCI ids are odd.")
        return None
    major, minor = facts.compute or (None, None)
    profiles = dict.fromkeys(_names((profile.name for profile in facts.profiles), f"MIG profiles of {place}", note))
    path = _names(facts.pci_path, f"PCI path of {place}", note)
    peers = _names(facts.nvlinks, f"NVLinks of {place}", note)
    return Card(
        uuid=_fitting(Uuid, facts.uuid, f"UUID of {place}", note),
        serial=_name(facts.serial, f"serial number of {place}", note),
        pci_address=place,
        pci_vendor=vendor,
        pci_device=device,
        pci_class=_fitting(PciClass, facts.pci_class, f"PCI class of {place}", note),
        product=_name(facts.product, f"product of {place}", note),
        memory_mib=_fitting(Count, facts.memory_mib, f"memory of {place}", note),
        compute_major=_fitting(Count, major, f"compute capability of {place}", note),
        compute_minor=_fitting(Count, minor, f"compute capability of {place}", note),
        mig_capable=_mig_capable(facts),
        mig_profiles=_first(list(profiles), PROFILES_MAX, f"MIG profiles of {place}", note) or None,
        numa_node=_fitting(Count, facts.numa_node, f"NUMA node of {place}", note),
        pci_path=_first(path, PCI_PATH_MAX, f"PCI path of {place}", note),
        nvlink_peers=_first(peers, LINKS_MAX, f"NVLinks of {place}", note),
        mig_enabled=facts.mig_enabled,
        mig_instances=_instances(facts.instances, place, note),
    )


def _mig_capable(facts: CardFacts) -> bool | None:
    """Whether the card knows MIG; None where it never said anything of itself."""
    if facts.mig_enabled is not None or facts.profiles:
        return True
    return None if facts.uuid is None or facts.compute is None else False


def _instances(instances: Iterable[Instance], place: str, note: Note) -> tuple[MigInstance, ...]:
    told = []
    for instance in instances:
        uuid = _fitting(Uuid, instance.uuid, f"MIG instance of {place}", note)
        profile = _name(instance.profile, f"profile of a MIG instance of {place}", note)
        start = _fitting(Count, instance.start, f"place of a MIG instance of {place}", note)
        if uuid is not None and profile is not None and start is not None:
            told.append(MigInstance(uuid=uuid, profile=profile, start=start))
    return _first(told, MIG_INSTANCES_MAX, f"MIG instances of {place}", note)


def _names(texts: Iterable[str], what: str, note: Note) -> list[str]:
    return [name for name in (_name(text, what, note) for text in texts) if name is not None]


def _name(text: str | None, what: str, note: Note) -> str | None:
    """Text without what nobody can read, as long as a name may be; None where nothing is left."""
    if text is None:
        return None
    plain = "".join(letter if letter.isprintable() else " " for letter in text).strip()[:NAME_LENGTH_MAX].strip()
    if plain != text or not plain:
        note(f"The {what} is odd, and told as {plain[:80]!a}." if plain else f"The {what} is empty, and left out.")
    return plain or None


def _fitting(kind: Any, value: Any, what: str, note: Note) -> Any:  # noqa: ANN401 - the kind says what it is
    """The value where it is of the kind, and else None."""
    if value is None:
        return None
    try:
        return _adapter(kind).validate_python(value, strict=True)
    except ValidationError:
        note(f"The {what} is odd, and left out: {value!a:.100}.")
        return None


@lru_cache(maxsize=16)
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - as above
    return TypeAdapter(kind)


def _first(values: Sequence[T], length_max: int, what: str, note: Note) -> tuple[T, ...]:
    if len(values) > length_max:
        note(f"Of {len(values)} {what} only the first {length_max} are told.")
    return tuple(values[:length_max])
