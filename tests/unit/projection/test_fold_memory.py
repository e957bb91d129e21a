"""A fold of the whole log whose decisions nobody publishes keeps none of them, however long the log."""

import pytest

from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeRegistered
from gpuledger.events.slot import SlotDeclared
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from gpuledger.projection.replay import fold_until
from support.deciders import AwayProjection
from support.events import event, message, rows_of
from support.fold_memory import events_kept
from support.projections import publish

GENERATION = 1


def turns(count: int) -> list[Decoded]:
    """Nodes that ask to be away, are taken, and come back: one decision each."""
    events: list[Decoded] = []
    for turn in range(count):
        node, number = f"n{turn % 5}", 2 * turn + 1
        events.append(event(NodeRegistered(), node, number=number, at=turn))
        events.append(event(SlotDeclared(node=node), f"slot-{node}", number=number + 1, at=turn))
    return events


def with_answers(facts: list[Decoded]) -> list[Decoded]:
    """The log with the decisions that a decider published meanwhile."""
    fold, log = Fold(AwayProjection(), GENERATION, numbering=Numbering("own", 1)), []
    waiting = list(facts)
    while waiting:
        log.append(waiting.pop(0))
        fold.apply(message(log[-1], len(log)))
        for decision in fold.take_decided():
            log.append(decision)
            fold.apply(message(decision, len(log)))
    return log


@pytest.mark.parametrize("count", [10, 1000])
@pytest.mark.parametrize("answered", [True, False], ids=["came back", "never came back"])
async def test_a_fold_in_memory_keeps_no_decision(count: int, answered: bool) -> None:
    ledger = MemoryLedger()
    log = with_answers(turns(count)) if answered else turns(count)
    assert len(log) == (3 if answered else 2) * count
    await publish(ledger, log)
    fold = await fold_until(AwayProjection(), ledger)
    assert fold.sequence == len(log)
    assert events_kept(fold) == 0
    assert (fold.take_decided(), fold.waiting.take_returned()) == ([], [])


async def test_a_fold_in_memory_has_the_rows_of_one_that_publishes() -> None:
    ledger = MemoryLedger()
    log = with_answers(turns(100))
    await publish(ledger, log)
    fold = Fold(AwayProjection(), GENERATION, numbering=Numbering("own", 1))
    fold.apply_all([message(one, sequence) for sequence, one in enumerate(log, 1)])
    assert rows_of(await fold_until(AwayProjection(), ledger)) == rows_of(fold)
    assert len(fold.decided) == len(fold.waiting.take_returned()) == 100
