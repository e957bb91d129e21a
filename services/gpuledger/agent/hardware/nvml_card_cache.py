"""What cannot change of the cards while NVML keeps them enumerated, so that surveys and polls do not query it again.

NVML enumerates cards when it is initialised. A card is forgotten when it stops answering, when its MIG mode is set,
which may reset it, and when the cards on the bus or their number change; all are when NVML is shut down.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.hardware.nvml_calls import Handle
from gpuledger.agent.hardware.nvml_mig import Modes, SupportedProfile
from gpuledger.agent.hardware.nvml_nvlink import CardLinks
from gpuledger.agent.hardware.sysfs import PciCard

REFRESH_SURVEYS: Final = 60
"""A card is queried anew after so many surveys, whatever happens: every five minutes."""


@dataclass
class CachedCard:
    """A card with its handle, what the bus shows of it, and what it reported; None: not queried, or not in full."""

    handle: Handle
    bus_facts: CardFacts
    properties: CardFacts | None = None
    profiles: dict[Modes, tuple[SupportedProfile, ...]] = field(default_factory=dict)
    links: CardLinks = field(default_factory=CardLinks)
    surveys: int = 0


class Versions(NamedTuple):
    """The versions of the driver and of CUDA, as NVML has them."""

    driver: str | None
    cuda: int | None


class CardCache:
    """The cards by their index in NVML; only the thread that calls NVML uses it."""

    def __init__(self) -> None:
        self._cards: dict[int, CachedCard] = {}
        self._count = 0
        self._bus: Mapping[str, PciCard] = {}
        self.versions: Versions | None = None

    def begin_survey(self, count: int, bus: Mapping[str, PciCard]) -> None:
        """Forget all cards if they are enumerated otherwise than before, and those that are due to be queried anew."""
        if (count, bus) != (self._count, self._bus):
            self._cards.clear()
        self._count, self._bus = count, bus
        for card in self._cards.values():
            card.surveys += 1
        self._cards = {index: card for index, card in self._cards.items() if card.surveys < REFRESH_SURVEYS}

    def by_index(self, index: int) -> CachedCard | None:
        """The card of an index, if it was enumerated."""
        return self._cards.get(index)

    def at(self, address: str) -> CachedCard | None:
        """The card at a PCI address, if it was enumerated."""
        return next((card for card in self._cards.values() if card.bus_facts.address == address), None)

    def put(self, index: int, card: CachedCard) -> None:
        """Keep a card."""
        self._cards[index] = card

    def forget(self, address: str) -> None:
        """Query the card at an address anew."""
        self._cards = {index: card for index, card in self._cards.items() if card.bus_facts.address != address}

    def clear(self) -> None:
        """Forget everything: handles are void."""
        self._cards.clear()
        self.versions = None
