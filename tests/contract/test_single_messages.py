"""Single messages of a log by their sequences, in every kind of ledger."""

import pytest

from gpuledger.events.position import Offset, number_of
from gpuledger.ledger import generation_log, partitioned_log, single
from gpuledger.ledger.api import MESSAGES_AT_ONCE, Ledger, Message
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import LogCutError, LogRestoredError
from support.ledgers import everything, numbers_of, outgoing


async def test_a_message_is_found_at_its_sequence(ledger: Ledger) -> None:
    await ledger.publish_many([outgoing(1), outgoing(2)])
    found = await ledger.message_at(2)
    assert found is not None
    (expected,) = await everything(ledger, after=1)
    assert (found.subject, found.data, found.sequence) == expected[:3]
    assert found.recorded_ns // 1000 == expected.recorded_ns // 1000
    assert [await ledger.message_at(sequence) for sequence in (0, 3)] == [None, None]


async def test_messages_are_found_at_all_their_sequences(ledger: Ledger) -> None:
    await ledger.publish_many([outgoing(number) for number in range(1, 2 * MESSAGES_AT_ONCE)])
    sequences = [1, 2, 5, *range(40, 2 * MESSAGES_AT_ONCE)]
    assert numbers_of([one for one in await ledger.messages_at(sequences) if one is not None]) == sequences
    assert await ledger.messages_at([]) == []


async def test_a_log_that_ends_before_a_message_that_it_had_was_restored(ledger: Ledger) -> None:
    await ledger.publish_many([outgoing(1), outgoing(2)])
    with pytest.raises(LogRestoredError, match="it ends at 1/2 and has no event at 1/3, where one was read"):
        await ledger.messages_at([1, 3])


async def test_a_log_without_a_message_that_it_had_was_cut(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    await ledger.publish_many([outgoing(1), outgoing(2), outgoing(3)])
    message_at, recorded_at = ledger.message_at, single.recorded_at

    async def lacks_the_second(sequence: Offset) -> Message | None:
        return None if number_of(sequence) == 2 else await message_at(sequence)

    async def stream_lacks_the_second(connection: Connection, stream: str, sequence: Offset) -> Message | None:
        return None if number_of(sequence) == 2 else await recorded_at(connection, stream, sequence)

    monkeypatch.setattr(ledger, "message_at", lacks_the_second)
    for module in (generation_log, partitioned_log):
        monkeypatch.setattr(module, "recorded_at", stream_lacks_the_second)
    with pytest.raises(LogCutError, match="it ends at 1/3 and has no event at 1/2, where one was read"):
        await ledger.messages_at([1, 2, 3])
