"""Which decisions a fold waits for, and which of its own events it does not fold where they stand."""

import pytest

from gpuledger.events.envelope import Decoded, encode, parse
from gpuledger.events.node import NodeBootstrapChanged, NodeDecommissioned
from gpuledger.projection.outstanding import NOTHING_CHANGED, ChangedDecisions, Outstanding
from support.events import event, hour

FIRST, SECOND = (event(NodeDecommissioned(), f"n{number}", number=number) for number in (1, 2))
CHANGE = event(NodeBootstrapChanged(phase="Validating", conditions=()), "n3", number=3)


def comes_back(waiting: Outstanding, decision: Decoded, *, is_folded: bool = True) -> bool:
    """Whether the decision was waited for, which now stands at 5."""
    return waiting.came_back(parse(encode(decision)), decision.data if is_folded else None, 5)


both = pytest.mark.parametrize("publishes", [True, False])


@both
def test_a_decision_comes_back_once(publishes: bool) -> None:
    waiting = Outstanding([FIRST], publishes=publishes)
    waiting.add(SECOND)
    assert [comes_back(waiting, one) for one in (FIRST, FIRST)] == [True, False]
    assert [one.id in waiting for one in (FIRST, SECOND)] == [False, True]
    assert waiting.take_returned() == ([FIRST.id] if publishes else [])


@both
@pytest.mark.parametrize(
    ("recorded", "is_folded", "changed"),
    [
        (CHANGE, True, NOTHING_CHANGED),
        (CHANGE._replace(epoch="theirs", number=9), True, NOTHING_CHANGED),
        (CHANGE._replace(time=hour(1)), True, ChangedDecisions(1, 5)),
        (CHANGE._replace(data=NodeBootstrapChanged(phase="Ready", conditions=())), True, ChangedDecisions(1, 5)),
        (CHANGE._replace(time=hour(1)), False, NOTHING_CHANGED),
        (CHANGE._replace(time=hour(1), recorded_at=hour(2)), True, NOTHING_CHANGED),
        (FIRST, True, NOTHING_CHANGED),
    ],
    ids=["the same", "numbered anew", "another time", "other data", "not folded", "restored", "not waited for"],
)
def test_a_decision_that_another_version_made_otherwise_is_counted(
    recorded: Decoded, publishes: bool, is_folded: bool, changed: ChangedDecisions
) -> None:
    waiting = Outstanding([CHANGE], publishes=publishes)
    comes_back(waiting, recorded, is_folded=is_folded)
    assert waiting.changed == changed


def test_decisions_are_kept_in_order_with_the_numbers_that_they_got() -> None:
    waiting = Outstanding([FIRST, SECOND], publishes=True)
    numbered = FIRST._replace(number=7)
    waiting.add(numbered)
    assert waiting.all() == [numbered, SECOND]
    assert waiting.get(FIRST.id) == numbered


def test_a_skipped_decision_has_come_back_and_is_never_folded_where_it_stands() -> None:
    waiting = Outstanding([FIRST], publishes=True)
    for one in (FIRST, SECOND):
        waiting.skip(one.id)
    assert waiting.take_returned() == [FIRST.id]
    assert waiting.all() == []
    assert [(one.id in waiting, waiting.is_skipped(one.id)) for one in (FIRST, SECOND)] == [
        (True, True),
        (False, False),
    ]
    assert [comes_back(waiting, one) for one in (FIRST, SECOND)] == [True, False]
    assert waiting.changed == NOTHING_CHANGED
