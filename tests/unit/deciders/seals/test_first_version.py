"""Logs that the first version of the service sealed, which counted restored seals as its own, beside this version.

Whatever it recorded is proven, and what is altered is named.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from gpuledger.deciders.seals import decide
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.domain.fact import Fact
from gpuledger.domain.seals.chain import Seals
from gpuledger.domain.sources.leader_epochs import head_after, leader_epoch
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import PARTITION, Position, number_of
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from gpuledger.tools.log_proof import GenerationProof, prove_log
from gpuledger.tools.log_restore import with_recorded_time
from gpuledger.tools.reporting import SILENT
from support.events import message
from support.runners import failures

LENGTH = 10
"""Messages of a seal."""

LEADS_MAX = 100
"""How often a leader may find more to seal."""


def on_sealed(state: Seals, _fact: Fact, data: LedgerSealed) -> None:
    """A seal covers the chain up to its last position, also one that was restored, and one that is recorded again."""
    chain = state.chains.rows[PARTITION]
    state.chains.put(chain._replace(sealed_to=data.last, sealed_digest=data.digest))


class FirstVersion(SealsProjection):
    version = 1
    handlers = {LedgerSealed: on_sealed}
    survives_restore = True


class Log(NamedTuple):
    generation: int
    messages: list[Message]

    def record(self, messages: Iterable[Message]) -> None:
        for one in messages:
            self.messages.append(one._replace(sequence=len(self.messages) + 1))

    def record_events(self, count: int) -> None:
        first = len(self.messages) + 1
        self.record(message(one, 1) for one in failures(range(first, first + count)))

    def seal(self, projection: SealsProjection) -> None:
        """A leader decides its past anew, and records what the log does not have."""
        fold, read, recorded = Fold(projection, self.generation, numbering=Numbering("x", 1)), 0, set[str]()
        fold.begin(LedgerIdentity("l", self.generation))
        head, epoch = Position(self.generation, len(self.messages)), ""
        for _ in range(LEADS_MAX):
            fold.apply_all(self.messages[read:])
            read = len(self.messages)
            epoch = epoch or leader_epoch(head_after(fold.seen.last_leader(projection.source), head), "x")
            missing = [one for one in fold.outstanding() if one.id not in recorded]
            if not missing:
                return
            numbered = [one._replace(epoch=epoch, number=at) for at, one in enumerate(missing, len(recorded) + 1)]
            recorded |= {one.id for one in missing}
            self.record(message(one, 1) for one in numbered)
        raise AssertionError("There is always more to seal.")

    def restored(self, generation: int) -> "Log":
        log = Log(generation, [])
        log.record(one._replace(data=with_recorded_time(one)) for one in self.messages)
        return log

    def proof(self) -> GenerationProof:
        return asyncio.run(self._proof())

    async def _proof(self) -> GenerationProof:
        """The number of the generation is no matter to it."""
        ledger = MemoryLedger()
        await ledger.publish_many([Outgoing(one.subject, str(one.sequence), one.data) for one in self.messages])
        backend: Any = SimpleNamespace(ledger=ledger, reporter=SILENT)
        return (await prove_log(backend)).current


Step = int | str
"""So many events, or what else happens."""

RESTORES = {"restored into an empty ledger": 1, "restored as generation 2": 2}
VERSIONS: dict[str, type[SealsProjection]] = {"version 1": FirstVersion, "version 2": SealsProjection}

STEPS = st.lists(st.one_of(st.integers(1, 4 * LENGTH), st.sampled_from([*RESTORES, *VERSIONS])), min_size=1, max_size=9)


def log_of(steps: Sequence[Step]) -> Log:
    log = Log(1, [])
    with patch.object(decide, "MESSAGES_PER_SEAL", LENGTH):
        for step in steps:
            if isinstance(step, int):
                log.record_events(step)
            elif step in RESTORES:
                log = log.restored(RESTORES[step])
            else:
                log.seal(VERSIONS[step]())
    return log


ROLLED_BACK: list[Step] = [
    *(25, "version 1", "restored into an empty ledger", 15, "version 1"),
    *("version 2", "version 1", "version 2"),
]
SEALED_LATE: list[Step] = [35, "version 1", "restored as generation 2", "version 1", "version 2"]
NOT_SEALED_ANEW: list[Step] = [25, "version 1", "restored into an empty ledger", 15, "version 1"]


@given(STEPS)
@example(ROLLED_BACK)
@example(SEALED_LATE)
@example(NOT_SEALED_ANEW)
def test_what_either_version_sealed_is_proven(steps: list[Step]) -> None:
    assert log_of(steps).proof().first_break is None


@given(STEPS, st.data())
@example(ROLLED_BACK, None)
@example(SEALED_LATE, None)
@example(NOT_SEALED_ANEW, None)
def test_what_is_altered_up_to_the_last_seal_is_named(steps: list[Step], data: st.DataObject | None) -> None:
    log = log_of(steps)
    sealed_to = number_of(log.proof().sealed_to.sequence)
    if not sealed_to:
        return
    at = sealed_to if data is None else data.draw(st.integers(1, sealed_to))
    one = log.messages[at - 1]
    log.messages[at - 1] = one._replace(data=one.data.replace(b'"', b' "', 1))
    found = re.fullmatch(r"the messages (\d+) to (\d+) are not those that were sealed", log.proof().first_break or "")
    assert found is not None
    assert int(found[1]) <= at <= int(found[2])
