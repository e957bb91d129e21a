"""Which entities a health report concerns, each by one name, however its monitor spells it. Pure."""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gpuledger.events.health import NodeHealthReported

NODE_ENTITY: Final = ""
"""The entity of a report that names none: the node itself, or with a healthy report all of the check."""

_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-7])?").fullmatch
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z./-]+").fullmatch
_DOMAIN_DIGITS: Final = 4


class Concerned(NamedTuple):
    """An entity by its name within a check; `device` is the UUID where it is a card whose UUID is known."""

    entity: str
    device: str | None


def concerned(report: NodeHealthReported) -> tuple[Concerned, ...]:
    """The entities that a report concerns, each once.

    These are its cards by UUID; else the entities of the most specific type of `GPU_UUID`, `PCI` and `GPU`; else every
    other entity as `TYPE/value`; else the node.
    """
    return tuple(Concerned(uuid, uuid) for uuid in dict.fromkeys(report.devices)) or as_named(report)


def as_named(report: NodeHealthReported) -> tuple[Concerned, ...]:
    """The entities that a report concerns as its monitor names them, whether or not its agent has found the cards."""
    return _by_type(report) or (Concerned(NODE_ENTITY, None),)


def _by_type(report: NodeHealthReported) -> tuple[Concerned, ...]:
    by_type: dict[str, dict[Concerned, None]] = {}
    for one in report.entities:
        kind = one.type.upper()
        named = _NAMES[kind](one.value) if kind in _NAMES else Concerned(f"{one.type}/{one.value}", None)
        by_type.setdefault(kind, {})[named] = None
    for kind in _NAMES:
        if kind in by_type:
            return tuple(by_type[kind])
    return tuple(named for found in by_type.values() for named in found)


def _card(uuid: str) -> Concerned:
    return Concerned(uuid, uuid)


def _pci(address: str) -> Concerned:
    """A PCI address without its function, in lower case: monitors write `0002:00:00` and `00000002:00:00.0`."""
    match = _PCI(address.lower())
    if match is None:
        return Concerned(f"PCI/{address}", None)
    domain = (match[1] or "").lstrip("0").rjust(_DOMAIN_DIGITS, "0")
    return Concerned(f"PCI/{domain}:{match[2]}:{match[3]}", None)


def _gpu(value: str) -> Concerned:
    """A card by its UUID, which some monitors give here, or by its index."""
    return _card(value) if _UUID(value) else Concerned(f"GPU/{value}", None)


_NAMES: Final[Mapping[str, Callable[[str], Concerned]]] = {"GPU_UUID": _card, "PCI": _pci, "GPU": _gpu}
"""The types of entities that name a card, the most specific first."""
