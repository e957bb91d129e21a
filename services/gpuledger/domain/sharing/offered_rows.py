"""The rows from which the decider of sharing follows which devices each node offers, and what it decided last."""

from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.domain.table import TableSpec

NOTHING_OBSERVED: Final = "[]"


class SharingNode(NamedTuple):
    """Whether a node's label gives its cards to sharing, since when it does or does no more, and its other label.

    `observed_at` is the time of the latest fact. `left_as_of` is the `since` of which pools have answered that they
    leave the cards alone.
    """

    node: str
    is_labelled: bool
    since: datetime
    partition_policy: str | None
    observed_at: datetime
    left_as_of: datetime | None

    @property
    def is_left(self) -> bool:
        """Whether no pool takes a card any more."""
        return self.is_labelled and self.left_as_of == self.since

    def ended_at(self) -> datetime | None:
        """Since when the label is gone; None while it is there."""
        return None if self.is_labelled else self.since


class SharingHardware(NamedTuple):
    """What a node's agent observed, and when; `gone_at` is the Node's end.

    JSON arrays of `Card`, `Nic`, and `SharedDevice` for what files on the node declare (empty: nothing).
    """

    node: str
    cards: str
    cards_at: datetime | None
    nics: str
    nics_at: datetime | None
    gone_at: datetime | None
    declared: str = ""
    declared_at: datetime | None = None

    def ended_at(self) -> datetime | None:
        """Since when the node is gone; None while an agent has observed something after that."""
        times = [time for time in (self.cards_at, self.nics_at, self.declared_at) if time is not None]
        is_over = self.gone_at is not None and all(time <= self.gone_at for time in times)
        return self.gone_at if is_over else None


class SharingCard(NamedTuple):
    """A GPUDevice: what identifies it, what excludes it, and the pool that has it."""

    name: str
    node: str
    uuid: str | None
    pci_address: str | None
    product: str | None
    memory_mib: int | None
    managed: bool
    ignored: bool
    missing: bool
    state: str
    pool: str | None


class SharingSlice(NamedTuple):
    """A ResourceSlice, and the time of the latest fact about it."""

    slice: str
    driver: str
    is_published: bool
    published_at: datetime

    def ended_at(self) -> datetime | None:
        """Since when it is withdrawn."""
        return None if self.is_published else self.published_at


class SharingSliceCard(NamedTuple):
    """A card that a ResourceSlice publishes, whole or in part, by its UUID."""

    slice: str
    uuid: str
    driver: str


class SharingOffer(NamedTuple):
    """What was last decided about a node: a `NodeDevicesShared` as JSON, and its time."""

    node: str
    offer: str
    is_enabled: bool
    changed_at: datetime

    def ended_at(self) -> datetime | None:
        """Since when the node shares nothing."""
        return None if self.is_enabled else self.changed_at


class SharingHolder(NamedTuple):
    """A GPU that a pod holds a share of, by its minor; `card` is its UUID, where that is known."""

    uid: str
    minor: int
    pod: str
    node: str
    card: str | None


NODE: Final = TableSpec("sharing_node", SharingNode, ("node",))
HARDWARE: Final = TableSpec("sharing_hardware", SharingHardware, ("node",))
CARD: Final = TableSpec("sharing_card", SharingCard, ("name",))
SLICE: Final = TableSpec("sharing_slice", SharingSlice, ("slice",))
SLICE_CARD: Final = TableSpec("sharing_slice_card", SharingSliceCard, ("slice", "uuid"))
HOLDER: Final = TableSpec("sharing_holder", SharingHolder, ("uid", "minor"))
OFFER: Final = TableSpec("sharing_offer", SharingOffer, ("node",))

SPECS: Final[tuple[TableSpec[Any], ...]] = (NODE, HARDWARE, CARD, SLICE, SLICE_CARD, HOLDER, OFFER)
