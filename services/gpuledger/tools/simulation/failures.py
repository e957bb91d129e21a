"""How cards fail: which of them, with which XID, and what is done about it. Pure; chance is an argument.

The mix is that of an Ampere fleet over 855 days, where over nine tenths of XID 95 came from a few cards.
"""

from enum import Enum
from typing import Final, NamedTuple

from gpuledger.tools.simulation.allocation import Allocation
from gpuledger.tools.simulation.fleet import Place
from gpuledger.tools.simulation.workload import Chance, drawn

HOT_XID: Final = 95
HOT_SHARE: Final = 0.9
"""The part of that XID's failures that comes from the hot cards."""

HOT_RESETS_MAX: Final = 10
"""A hot card is reset so often before it is replaced, and another card becomes hot."""


class Remedy(Enum):
    """What becomes of a card that failed."""

    NOTHING = "nothing"
    RESET = "reset"
    REPLACEMENT = "replacement"


class Xid(NamedTuple):
    """A kind of failure, with its weight in the mix. NVIDIA's XID catalogue has the meanings."""

    number: int
    weight: int
    remedy: Remedy
    message: str

    @property
    def kind(self) -> str:
        """The field's short name for it."""
        return f"XID {self.number}"


XIDS: Final = (
    Xid(95, 38_905, Remedy.REPLACEMENT, "Uncontained memory error"),
    Xid(31, 18_876, Remedy.NOTHING, "GPU memory page fault of an application"),
    Xid(74, 2_987, Remedy.REPLACEMENT, "NVLink error"),
    Xid(119, 2_136, Remedy.REPLACEMENT, "GSP RPC timeout"),
    Xid(63, 95, Remedy.REPLACEMENT, "Row remapping event"),
    Xid(64, 35, Remedy.REPLACEMENT, "Row remapping failure"),
    Xid(48, 32, Remedy.REPLACEMENT, "Double-bit ECC error"),
)
FATAL: Final = frozenset(xid.kind for xid in XIDS if xid.remedy is not Remedy.NOTHING)
"""Kinds after which a card is out of service."""


class Failure(NamedTuple):
    """A card fails."""

    place: Place
    xid: Xid
    remedy: Remedy


class Failures:
    """Draws failures. A card that is out of service fails no further."""

    def __init__(self, chance: Chance, hot: list[Place]) -> None:
        self._chance = chance
        self._resets = dict.fromkeys(hot, 0)

    def next(self, allocation: Allocation) -> Failure | None:
        """The failure that happens now; None where no card is in service."""
        usable = allocation.usable()
        if not usable:
            return None
        xid = drawn(self._chance, [(xid, xid.weight) for xid in XIDS])
        hot = [place for place in self._resets if allocation.slots[place].card is not None]
        if xid.number == HOT_XID and hot and self._chance.random() < HOT_SHARE:
            usable = [place for place in hot if allocation.slots[place].in_service] or usable
        elif xid.remedy is Remedy.NOTHING:
            usable = [place for place in usable if allocation.holders(place)] or usable
        place = usable[self._chance.randrange(len(usable))]
        return Failure(place, xid, self._remedy(place, xid))

    def replaced(self, place: Place, allocation: Allocation) -> None:
        """The card of a slot was replaced; where it was hot, some other card is from now on."""
        if self._resets.pop(place, None) is not None:
            others = [other for other in allocation.slots if other not in self._resets and other != place]
            self._resets[others[self._chance.randrange(len(others))] if others else place] = 0

    def _remedy(self, place: Place, xid: Xid) -> Remedy:
        if xid.number != HOT_XID or place not in self._resets:
            return xid.remedy
        self._resets[place] += 1
        return Remedy.RESET if self._resets[place] <= HOT_RESETS_MAX else xid.remedy
