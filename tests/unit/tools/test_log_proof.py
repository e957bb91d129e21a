"""The proof of a log whose seals lie far behind what they cover, as in one that was long before it was sealed."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from gpuledger.domain.seals.chain import beginning
from gpuledger.events.envelope import encode, nats_subject_of
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import Offset, Position
from gpuledger.ledger.api import Message
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.tools.log_proof import GenerationProof, prove_log
from gpuledger.tools.reporting import SILENT
from support.events import event

MESSAGES = 1_002_000
PER_SEAL = 1_000
PER_BATCH = 1_000
SUBJECT, DATA = "ledger.node.n1.device.d.failed", b"{}"


class LongLog:
    """A ledger whose events are the same, with seals behind all of them; nothing is kept of it."""

    generation = 1
    identity = LedgerIdentity("long", 1)

    def __init__(self) -> None:
        chain, self.seals = beginning(""), list[Message]()
        for position in range(1, MESSAGES + 1):
            chain = chain.after(position, SUBJECT, DATA)
            if chain.unsealed == PER_SEAL:
                first, previous = position - PER_SEAL + 1, chain.sealed_digest
                data = LedgerSealed(first=first, last=position, digest=chain.digest, previous=previous)
                chain = chain._replace(sealed_to=position, sealed_digest=chain.digest)
                number = len(self.seals) + 1
                sealed = event(data, "1", number=number, source="/services/seals")
                self.seals.append(Message(nats_subject_of(sealed), encode(sealed), MESSAGES + number, 0))
        self.newest = chain.digest

    async def head(self) -> Offset:
        return self.seals[-1].sequence

    async def history(self, _after: Offset, _until: Offset, subject_filter: str = "") -> AsyncIterator[list[Message]]:
        if not subject_filter:
            for first in range(1, MESSAGES + 1, PER_BATCH):
                yield [Message(SUBJECT, DATA, position, 0) for position in range(first, first + PER_BATCH)]
        yield self.seals


@pytest.mark.long
async def test_a_seal_may_lie_any_distance_behind_what_it_covers() -> None:
    log: Any = LongLog()
    found = await prove_log(SimpleNamespace(ledger=log, reporter=SILENT))  # type: ignore[arg-type] # it reads only the ledger
    expected = GenerationProof(Position(1, MESSAGES), len(log.seals), log.newest, len(log.seals), None)
    assert found.current._replace(link="") == expected
