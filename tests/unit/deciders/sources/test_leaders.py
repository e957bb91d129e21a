"""Epochs of a decider's leaders: a later one closes those before it, and a closed one costs no row."""

from datetime import timedelta

import pytest

from gpuledger.deciders.sources.decide import GAP_GRACE_S
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.sources.leader_epochs import leader_epoch
from gpuledger.events.node import NodeInventoryWithdrawn
from gpuledger.events.position import Position
from gpuledger.events.source import SourceGapDetected
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import GENERATION, START, event, message

POOLS, INVENTORY = "/services/pools", "/services/inventory"


def decision(sequence: int, leader: int, number: int) -> Message:
    """Of the leader that found the head `leader`."""
    epoch = leader_epoch(Position(GENERATION, leader), "x")
    data = NodeInventoryWithdrawn()
    return message(event(data, "n1", number=number, at=sequence, source=INVENTORY, epoch=epoch), sequence)


def folded(*log: Message, batch: int = 1000) -> Fold:
    fold = Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1))
    for start in range(0, len(log), batch):
        fold.apply_all(log[start : start + batch])
        fold.seen.take_changes()
        fold.seen.take_forgotten()
    return fold


def sources(fold: Fold) -> list[tuple[str, int, int, int]]:
    rows = fold.state.tables()["source"].rows.values()
    return [(row.epoch, row.events, row.duplicates, row.missing) for row in rows]


def test_many_leaders_have_one_row_which_counts_what_all_recorded() -> None:
    log = [decision(sequence, sequence - 1, 1) for sequence in range(1, 101)]
    assert sources(folded(*log)) == [("1/99/x", 100, 0, 0)]


@pytest.mark.parametrize("batch", [1, 2, 3, 1000])
def test_what_comes_late_of_a_closed_epoch_counts_nowhere_however_it_is_read(batch: int) -> None:
    log = (decision(1, 0, 1), decision(2, 0, 2), decision(3, 2, 1), decision(4, 0, 2), decision(5, 0, 3))
    fold = folded(*log, decision(6, 2, 2), batch=batch)
    assert sources(fold) == [("1/2/x", 4, 0, 0)]
    assert (fold.events, list(fold.seen.numbers)) == (4, [(INVENTORY, "1/2/x")])


def test_a_closed_epoch_that_lacks_numbers_keeps_its_row_and_its_gap() -> None:
    fold = folded(decision(1, 0, 1), decision(2, 0, 4), decision(3, 2, 1), decision(4, 0, 2))
    assert sources(fold) == [("1/0/x", 2, 1, 2), ("1/2/x", 1, 0, 0)]
    fold.due(START + timedelta(hours=100, seconds=2 * GAP_GRACE_S))
    (gap,) = fold.take_decided()
    assert gap.data == SourceGapDetected(epoch="1/0/x", first=2, last=3)
    assert len(fold.state.tables()["gap"].rows) == 1
