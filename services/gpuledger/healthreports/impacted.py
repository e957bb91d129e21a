"""Which of the node's cards a report of a health monitor concerns. Pure.

Monitors name one card in several ways: by its UUID, its PCI address with or without a function, its number, or the UUID
of a MIG instance of it. A number counts only where nothing else names a card, because the driver numbers the cards that
answer, and others move up when one falls off the bus.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from gpuledger.domain.pci import pci_address

GPU: Final = "GPU"
GPU_UUID: Final = "GPU_UUID"
PCI: Final = "PCI"


class NamedInstance(Protocol):
    """A MIG instance, as far as monitors name it."""

    @property
    def uuid(self) -> str:
        """Its UUID."""
        ...


class NamedCard(Protocol):
    """A card, as far as monitors name it: its PCI address, its UUID if that is known, and its MIG instances."""

    @property
    def address(self) -> str:
        """Its PCI address, in Linux's form."""
        ...

    @property
    def uuid(self) -> str | None:
        """Its UUID."""
        ...

    @property
    def instances(self) -> Sequence[NamedInstance]:
        """Its partitions."""
        ...


def impacted(entities: Iterable[tuple[str, str]], cards: Sequence[NamedCard]) -> tuple[str, ...]:
    """The UUIDs of the cards among the entities, each once, in the order of the entities, which are types with values.

    `cards` are those of the latest survey, in the order of their addresses; what names none of them is left out.
    """
    by_uuid = {uuid.lower(): card.uuid for card in cards for uuid in _uuids(card)}
    by_address = {card.address: card.uuid for card in cards if card.uuid}
    by_number = [card.uuid for card in cards if card.uuid]
    named, numbered = [], []
    for kind, value in entities:
        if kind == PCI:
            named.append(by_address.get(_address(value)))
        elif kind in (GPU, GPU_UUID):
            named.append(by_uuid.get(value.lower()))
            numbered.append(_at(by_number, value) if kind == GPU else None)
    found = [uuid for uuid in named if uuid] or [uuid for uuid in numbered if uuid]
    return tuple(dict.fromkeys(found))


def _uuids(card: NamedCard) -> list[str]:
    return [card.uuid, *(instance.uuid for instance in card.instances)] if card.uuid else []


def _address(text: str) -> str:
    return pci_address(text if "." in text else f"{text}.0") or ""


def _at(uuids: Sequence[str], number: str) -> str | None:
    """The card of a number, as the driver counts them; None where there is none."""
    is_number = number.isascii() and number.isdigit() and len(number) <= len(str(len(uuids)))
    return uuids[int(number)] if is_number and int(number) < len(uuids) else None
