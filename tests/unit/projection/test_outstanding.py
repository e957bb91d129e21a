"""Which decisions a fold waits for, and which of its own events it does not fold where they stand."""

import pytest

from gpuledger.events.node import NodeDecommissioned
from gpuledger.projection.outstanding import Outstanding
from support.events import event

FIRST, SECOND = (event(NodeDecommissioned(), f"n{number}", number=number) for number in (1, 2))


@pytest.mark.parametrize("publishes", [True, False])
def test_a_decision_comes_back_once(publishes: bool) -> None:
    waiting = Outstanding([FIRST], publishes=publishes)
    waiting.add(SECOND)
    assert [waiting.came_back(one.id) for one in (FIRST, FIRST)] == [True, False]
    assert [one.id in waiting for one in (FIRST, SECOND)] == [False, True]
    assert waiting.take_returned() == ([FIRST.id] if publishes else [])


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
    assert [waiting.came_back(one.id) for one in (FIRST, SECOND)] == [True, False]
