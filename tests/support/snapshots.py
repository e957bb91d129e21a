"""Snapshots for tests: a fold as another process has it that begins where this one stands."""

from gpuledger.ledger.api import Message
from gpuledger.ledger.identity import LedgerIdentity, anchor_of
from gpuledger.projection.fold import Fold
from gpuledger.projection.snapshot import (
    Piece,
    RowDecoder,
    Snapshot,
    fold_of,
    layout_of,
    pieces_of,
    snapshot_of,
)
from support.events import GENERATION

IDENTITY = LedgerIdentity("ledger", GENERATION)


def reloaded(fold: Fold, last: Message) -> Fold:
    """The fold as another process has it that loads its snapshot behind the last message."""
    anchor = anchor_of(last.sequence, last.subject, last.data)
    snapshot = snapshot_of(fold, anchor, IDENTITY)
    state = fold.projection.new_state()
    layout = layout_of(fold.projection, state)
    decoder = RowDecoder(layout.specs)
    rows: dict[str, list[tuple[object, ...]]] = {one.name: [] for one in layout.specs}
    for piece in pieces_of(snapshot):
        rows[piece.table] += decoder.rows(Piece(*piece))
    loaded = Snapshot(snapshot.ledger_id, snapshot.generation, snapshot.anchor, rows)
    return fold_of(fold.projection, loaded, state, ())
