"""Which own events a leader accepts, where it waits for them, and when it gives up."""

from typing import Any

import pytest

from gpuledger.events.envelope import Decoded, encode, parse
from gpuledger.events.node import NodeDecommissioned
from gpuledger.events.position import Position
from gpuledger.events.source import SourceMessageIdTaken
from gpuledger.projection.errors import AnotherLeaderError, DecisionConflictError, DecisionLostError
from gpuledger.projection.returns import IDLE_TICKS_MAX, Returns
from support.events import event, hour

HEAD, SETTLED = 10, 5
BEHIND = HEAD + 1
OWN = event(NodeDecommissioned(), "n1", source="/services/away", epoch="mine", number=3)
THEIRS = OWN._replace(epoch="theirs", number=7)
LATER = OWN._replace(time=hour(1))
TAKEN = event(
    SourceMessageIdTaken(generation=1, sequence=1, nats_subject="s", event="e", message_id="m"),
    "/services/away",
    source="/services/away",
    epoch="taken/x",
)


def returns(**sent: int) -> Returns:
    return Returns("away", 1, head=HEAD, settled=SETTLED, sent=sent, skipped=[Position(1, 20), Position(2, 21)])


@pytest.mark.parametrize(
    ("sequence", "came", "expected", "error"),
    [
        (BEHIND, OWN, OWN, None),
        (BEHIND, OWN, None, AnotherLeaderError),
        (BEHIND, THEIRS, OWN, AnotherLeaderError),
        (BEHIND, LATER, OWN, DecisionConflictError),
        (BEHIND, TAKEN, None, None),
        (HEAD, OWN, None, None),
        (HEAD, THEIRS, OWN, None),
        (HEAD, THEIRS._replace(time=hour(1)), OWN, DecisionConflictError),
        (SETTLED, THEIRS._replace(time=hour(1)), OWN, None),
        (SETTLED, LATER, OWN, DecisionConflictError),
    ],
)
def test_own_events(sequence: int, came: Decoded, expected: Decoded | None, error: type[Exception] | None) -> None:
    checked: Any = parse(encode(came))
    if error is None:
        returns().came(sequence, checked, expected)
    else:
        with pytest.raises(error, match=f"stopped at 1/{sequence}"):
            returns().came(sequence, checked, expected)


def test_what_was_sent_is_due_where_it_was_recorded() -> None:
    waiting = returns(a=11)
    waiting.sent({OWN.id: 13, "b": 12})
    waiting.check(10)
    for _ in range(2):
        with pytest.raises(DecisionLostError, match="decision a was recorded at 1/11"):
            waiting.check(11)


def test_what_came_is_no_longer_due_and_what_is_skipped_never() -> None:
    waiting = returns(a=20)
    waiting.sent({OWN.id: 13})
    waiting.came(13, parse(encode(OWN)), OWN)
    waiting.check(20)
    waiting.sent({"b": 21})
    with pytest.raises(DecisionLostError):
        waiting.check(21)


def test_a_repeat_of_what_is_held_back_is_none_in_the_past() -> None:
    came = parse(encode(OWN))
    returns().repeats(HEAD, came, OWN)
    with pytest.raises(DecisionLostError, match="its number was given"):
        returns().repeats(BEHIND, came, OWN)
    with pytest.raises(DecisionLostError):
        Returns("away", 1, head=HEAD, settled=0, sent={OWN.id: HEAD}, skipped=[]).repeats(HEAD, came, OWN)


def test_what_an_earlier_leader_published_too_late_is_none_of_ours() -> None:
    for expected in (OWN, None):
        returns(**{OWN.id: BEHIND + 1}).repeats(BEHIND, parse(encode(THEIRS)), expected)


def test_an_idle_log_is_asked_only_where_something_is_due_and_for_long() -> None:
    assert [returns().overdue() for _ in range(IDLE_TICKS_MAX)] == [None] * IDLE_TICKS_MAX
    waiting = returns(a=11)
    assert [waiting.overdue() for _ in range(IDLE_TICKS_MAX)] == [None] * (IDLE_TICKS_MAX - 1) + [11]
    waiting.check(10)
    assert waiting.overdue() is None
