"""Draws failures of cards: which card, with which XID, and the remedy. Pure; chance is an argument.

The mix is that of an Ampere fleet over 855 days, in which a few cards caused over nine tenths of all XID 95.
"""

from enum import Enum
from typing import Final, NamedTuple

from gpuledger.tools.simulation.allocation import FleetAllocation
from gpuledger.tools.simulation.fleet import SlotId
from gpuledger.tools.simulation.workload import Chance, drawn

HOT_XID: Final = 95
HOT_SHARE: Final = 0.9
"""The share of that XID's failures that comes from the hot cards."""

HOT_RESETS_MAX: Final = 10
"""The resets of a hot card before it is replaced and another card becomes hot."""


class Remedy(Enum):
    """The remedy for a card that failed."""

    NOTHING = "nothing"
    RESET = "reset"
    REPLACEMENT = "replacement"


class XidError(NamedTuple):
    """A kind of failure, with its weight in the mix. NVIDIA's XID catalogue has the meanings."""

    number: int
    weight: int
    remedy: Remedy
    message: str

    @property
    def kind(self) -> str:
        """The field's short name for it."""
        return f"XID {self.number}"

    @property
    def code(self) -> str:
        """The number as health monitors report it."""
        return str(self.number)


XIDS: Final = (
    XidError(95, 38_905, Remedy.REPLACEMENT, "Uncontained memory error"),
    XidError(31, 18_876, Remedy.NOTHING, "GPU memory page fault of an application"),
    XidError(74, 2_987, Remedy.REPLACEMENT, "NVLink error"),
    XidError(119, 2_136, Remedy.REPLACEMENT, "GSP RPC timeout"),
    XidError(63, 95, Remedy.REPLACEMENT, "Row remapping event"),
    XidError(64, 35, Remedy.REPLACEMENT, "Row remapping failure"),
    XidError(48, 32, Remedy.REPLACEMENT, "Double-bit ECC error"),
)
FATAL: Final = frozenset(xid.kind for xid in XIDS if xid.remedy is not Remedy.NOTHING)
"""Kinds after which a card is out of service."""


class CardFailure(NamedTuple):
    """A card fails."""

    slot_id: SlotId
    xid: XidError
    remedy: Remedy


class Failures:
    """Draws failures of cards that are in service."""

    def __init__(self, chance: Chance, hot: list[SlotId]) -> None:
        self._chance = chance
        self._resets = dict.fromkeys(hot, 0)

    def next(self, allocation: FleetAllocation) -> CardFailure | None:
        """The failure that happens now; None where no card is in service."""
        usable = allocation.usable()
        if not usable:
            return None
        xid = drawn(self._chance, [(xid, xid.weight) for xid in XIDS])
        hot = [slot_id for slot_id in self._resets if allocation.slots[slot_id].card is not None]
        if xid.number == HOT_XID and hot and self._chance.random() < HOT_SHARE:
            usable = [slot_id for slot_id in hot if allocation.slots[slot_id].in_service] or usable
        elif xid.remedy is Remedy.NOTHING:
            usable = [slot_id for slot_id in usable if allocation.holders(slot_id)] or usable
        slot_id = usable[self._chance.randrange(len(usable))]
        return CardFailure(slot_id, xid, self._remedy(slot_id, xid))

    def replaced(self, slot_id: SlotId, allocation: FleetAllocation) -> None:
        """Note that a slot's card was replaced; if it was hot, another card is from now on."""
        if self._resets.pop(slot_id, None) is not None:
            others = [other for other in allocation.slots if other not in self._resets and other != slot_id]
            self._resets[others[self._chance.randrange(len(others))] if others else slot_id] = 0

    def _remedy(self, slot_id: SlotId, xid: XidError) -> Remedy:
        if xid.number != HOT_XID or slot_id not in self._resets:
            return xid.remedy
        self._resets[slot_id] += 1
        return Remedy.RESET if self._resets[slot_id] <= HOT_RESETS_MAX else xid.remedy
