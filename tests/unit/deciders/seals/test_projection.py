"""When the log is sealed: the fold of the service, as its leader runs it."""

from collections.abc import Iterable
from datetime import datetime

import pytest

from gpuledger.deciders.seals.decide import MESSAGES_PER_SEAL
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.domain.seals.chain import Chain
from gpuledger.domain.seals.proof import RecordedSeal, compare
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import PARTITION, Offset
from gpuledger.ledger.api import Message
from gpuledger.ledger.identity import LedgerIdentity, Predecessor, anchor_of
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from gpuledger.tools.log_restore import with_recorded_time
from support.events import START, event, message
from support.runners import failures

SEALS = 2
EVENTS = SEALS * MESSAGES_PER_SEAL + 5


class Log:
    """A log that the service reads, and its seals, recorded as soon as they are made."""

    def __init__(self, identity: LedgerIdentity, epoch: str = "a") -> None:
        self.messages: list[Message] = []
        self.fold = Fold(SealsProjection(), identity.generation, numbering=Numbering(epoch, 1))
        self.fold.begin(identity)
        self.links: dict[Offset, str] = {}

    def record(self, messages: Iterable[Message]) -> None:
        for one in messages:
            at = len(self.messages) + 1
            self.messages.append(one._replace(sequence=at))
            self.fold.apply(self.messages[-1])
            self.links[at] = self.chain.digest

    def record_outstanding(self) -> None:
        self.record(message(one, 1) for one in self.fold.outstanding())

    @property
    def chain(self) -> Chain:
        chain: Chain = self.fold.state.tables()["seal_chain"].rows[PARTITION]
        return chain

    def seals(self) -> list[RecordedSeal]:
        found = [(one.sequence, decode(one.data)) for one in self.messages if ".svc.seals." in one.subject]
        return [
            RecordedSeal(at, one.data)
            for at, one in found
            if isinstance(one.data, LedgerSealed) and one.recorded_at is None
        ]


def written(numbers: range) -> list[Message]:
    return [message(one, 1) for one in failures(numbers)]


def sealed(identity: LedgerIdentity) -> Log:
    log = Log(identity)
    log.record(written(range(1, EVENTS + 1)))
    log.record_outstanding()
    assert [one.data.last for one in log.seals()] == [MESSAGES_PER_SEAL, 2 * MESSAGES_PER_SEAL]
    return log


def successor(log: Log) -> LedgerIdentity:
    """The generation behind another log."""
    last = log.messages[-1]
    anchor = anchor_of(last.sequence, last.subject, last.data)
    return LedgerIdentity("l", 2, Predecessor(last.sequence, anchor.digest))


@pytest.mark.parametrize("generation", [1, 2])
def test_what_was_restored_is_sealed_anew(generation: int) -> None:
    """Whatever the number of its generation is; also what was restored from a restored log."""
    log = sealed(LedgerIdentity("l", 1))
    for restore, epoch in enumerate(("b", "c"), 1):
        restored = Log(LedgerIdentity("m", 1) if generation == 1 else successor(log), epoch)
        restored.record(one._replace(data=with_recorded_time(one)) for one in log.messages)
        restored.record(written(range(restore * EVENTS, restore * EVENTS + MESSAGES_PER_SEAL)))
        due = len(restored.messages) // MESSAGES_PER_SEAL
        restored.record_outstanding()
        found = compare(restored.seals(), restored.links)
        assert (found.seals, found.first_break) == (due, None)
        assert (restored.chain.sealed_to, restored.chain.sealed_digest) == (found.sealed_to, found.newest)
        log = restored


@pytest.mark.parametrize(("recorded_at", "sealed_to"), [(None, 5), (START, 0)], ids=["of this log", "restored"])
def test_a_seal_of_another_log_covers_nothing_here(recorded_at: datetime | None, sealed_to: int) -> None:
    log = Log(LedgerIdentity("l", 1))
    log.record(written(range(1, 10)))
    seal = event(LedgerSealed(first=1, last=5, digest="0" * 64), "1", source="/services/seals")
    log.record([message(seal._replace(recorded_at=recorded_at), 1)])
    assert log.chain.sealed_to == sealed_to


@pytest.mark.parametrize(
    "data", [b'{"id":"%s"}' % (b"x" * 1025), b'{"id":"\\u0000"}', b'{"id":1}', b"\xff", b"[" * 2000]
)
def test_whatever_an_agent_records_it_is_sealed_with_the_next_event(data: bytes) -> None:
    """No id that a message has can be a cause that an event cannot name."""
    log = Log(LedgerIdentity("l", 1))
    nothing, *others = written(range(1, 3))
    log.record([nothing._replace(data=data)] * MESSAGES_PER_SEAL)
    assert not log.fold.outstanding()
    log.fold.decision_bytes_max = MESSAGES_PER_SEAL * MESSAGES_PER_SEAL
    log.record(others)
    (seal,) = log.fold.outstanding()
    assert isinstance(seal.data, LedgerSealed)
    assert (seal.data.first, seal.data.last) == (1, MESSAGES_PER_SEAL + 1)


def test_a_seal_that_is_published_again_sets_nothing_back() -> None:
    log = sealed(LedgerIdentity("l", 1))
    before = log.chain
    first, second = (decode(one.data) for one in log.messages if ".svc.seals." in one.subject)
    log.record(message(again(one), 1) for one in (first, second))
    assert (log.chain.sealed_to, log.chain.sealed_digest) == (before.sealed_to, before.sealed_digest)
    log.record_outstanding()
    assert compare(log.seals(), log.links).first_break is None


def again(event: Decoded) -> Decoded:
    """The event as the next leader publishes it."""
    return event._replace(epoch="b")
