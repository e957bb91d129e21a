"""What tells a generation that goes on behind another one, and which of its messages are missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.api import StreamInfo

from gpuledger.events.position import NEVER, Generations, Position, number_of
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.errors import LogCutError
from gpuledger.ledger.identity import Closed, Continued, LedgerIdentity, Predecessor, identity_of, metadata_of
from gpuledger.ledger.publish import EXPECTED_STREAM, Run
from gpuledger.ledger.stream import check_whole, stream_config

CONTINUED = Continued((Closed(1, 0, "file:/a"), Closed(2, 40, "s3://b/c")), "", "a" * 64, 103)
IDENTITY = LedgerIdentity("an-id", 3, Predecessor(100, "b" * 64), CONTINUED)


def info(messages: int, first: int, last: int, identity: LedgerIdentity = IDENTITY) -> StreamInfo:
    state = {"messages": messages, "bytes": 0, "first_seq": first, "last_seq": last, "consumer_count": 0}
    config = stream_config(identity.generation).evolve(metadata=metadata_of(identity))
    found: StreamInfo = StreamInfo.from_response({"config": config.as_dict(), "state": state})
    return found


def test_metadata_name_the_closed_generations() -> None:
    assert identity_of(metadata_of(IDENTITY), 3) == IDENTITY
    assert IDENTITY.generations.begun == ((1, 0), (2, 40), (3, 100))
    assert (IDENTITY.behind, IDENTITY.link, IDENTITY.beginning) == (100, "a" * 64, "")


def test_a_generation_behind_a_restored_one_begins_anew() -> None:
    restored = IDENTITY._replace(continued=None)
    assert restored.generations.begun == ((3, 0),)
    assert (restored.behind, restored.link, restored.beginning) == (0, "b" * 64, "b" * 64)


@pytest.mark.parametrize(("messages", "first", "last"), [(0, 101, 100), (1, 101, 101), (7, 101, 107)])
def test_a_whole_generation_begins_behind_the_closed_one(messages: int, first: int, last: int) -> None:
    check_whole(info(messages, first, last))


@pytest.mark.parametrize(("messages", "first", "last"), [(5, 103, 107), (6, 101, 107), (0, 108, 107)])
def test_one_that_lost_messages_is_refused_wherever_they_stood(messages: int, first: int, last: int) -> None:
    with pytest.raises(LogCutError, match="has recorded 7 events"):
        check_whole(info(messages, first, last))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 400))
def test_every_place_is_in_one_generation(sizes: list[int], at: int) -> None:
    ends = [sum(sizes[:number]) for number in range(len(sizes))]
    generations = Generations(list(enumerate(ends, 1)))
    found = generations.of(at)
    assert generations.has(Position(found, at))
    assert [number for number in range(1, len(sizes) + 2) if generations.has(Position(number, at))] == [found]
    assert at == 0 or number_of(generations.behind(found)) < at <= number_of(generations.end(found))
    assert generations.end(generations.current) is NEVER


def test_what_a_stream_may_have_taken_no_other_one_takes() -> None:
    run = Run("inbox", "LEDGER_1", [Outgoing("s", "id", b"")], None)
    run.go_back()
    run.next_to_send = 1
    assert EXPECTED_STREAM not in run.headers_of(run.messages[0])
    run.go_back()
    assert run.headers_of(run.messages[0])[EXPECTED_STREAM] == "LEDGER_1"
