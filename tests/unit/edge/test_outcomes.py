"""What a service of the edge records of itself has times that its own facts allow."""

import pytest

from gpuledger.edge.outcomes import OutcomeRecorder
from gpuledger.events.envelope import parse
from gpuledger.events.publishing import SourceKind
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.backoff import Backoff
from support.events import hour
from support.sharing import reserved


@pytest.mark.parametrize(("not_before", "at"), [(None, 2), (1, 2), (3, 3)])
async def test_facts_are_not_earlier_than_what_they_follow(not_before: int | None, at: int) -> None:
    ledger = MemoryLedger()
    recorder = OutcomeRecorder(SourceKind.EXTENDER, ledger, Backoff(0.01, 0.01), lambda: hour(2), lambda: 1.0)
    await recorder.record_together([("ml/a", reserved(), "e1")], None if not_before is None else hour(not_before))
    async with ledger.read() as reader:
        (message,) = await reader.next_batch()
    assert parse(message.data).time == hour(at)
