"""The state of the decider of sharing: labels, hardware, who has each card, and the offers that were decided. Pure."""

from gpuledger.domain.fact import TableState
from gpuledger.domain.sharing import offered_rows as rows
from gpuledger.domain.table import Table
from gpuledger.domain.tombstones import RowEnds


class Offering(TableState):
    """What the offers of nodes depend on. A fold marks the nodes that a fact concerns: only those are decided."""

    def __init__(self) -> None:
        self.node = Table(rows.NODE)
        self.hardware = Table(rows.HARDWARE)
        self.card = Table(rows.CARD, "node", "uuid")
        self.slice = Table(rows.SLICE)
        self.slice_card = Table(rows.SLICE_CARD, "slice", "uuid")
        self.holder = Table(rows.HOLDER, "uid", "node", "pod")
        self.offer = Table(rows.OFFER)
        self.node_ends = RowEnds(self.node, rows.SharingNode.ended_at)
        self.hardware_ends = RowEnds(self.hardware, rows.SharingHardware.ended_at)
        self.slice_ends = RowEnds(self.slice, rows.SharingSlice.ended_at)
        self.offer_ends = RowEnds(self.offer, rows.SharingOffer.ended_at)
        self._touched: dict[str, None] = {}

    def driver_of(self, uuid: str) -> str | None:
        """The DRA driver that publishes a card; None where none does."""
        return min((row.driver for row in self.slice_card.where("uuid", uuid)), default=None)

    def is_held(self, node: str, card: str | None, minor: int) -> bool:
        """Whether a pod holds a share of a GPU of the node."""
        holders = self.holder.where("node", node)
        return any(row.card == card if row.card is not None else row.minor == minor for row in holders)

    def touch(self, node: str) -> None:
        """Another offer of the node may be due."""
        self._touched[node] = None

    def touch_card(self, uuid: str) -> None:
        """Another owner of a card may be due, wherever it is."""
        for row in self.card.where("uuid", uuid):
            self.touch(row.node)

    def take_touched(self) -> list[str]:
        """The nodes that were touched since the last call."""
        touched, self._touched = self._touched, {}
        return list(touched)
