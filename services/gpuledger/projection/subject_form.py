"""Gives messages the form of subject that a ledger takes: names share one once `Rule.SHARED_SUBJECTS` is enforced.

For services and importers, which read the log; an agent may not, and `gpuledger.ledger.edge` does it for it. Nothing
may be recorded under a shared subject before that rule: every fold rejects it there.
"""

from collections.abc import Sequence
from typing import Final

from gpuledger.events.position import ORIGIN, is_same
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import rule_subject, rule_version
from gpuledger.events.subjects import shared_subject
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.projection.replay import skipped_positions

_RULE: Final = Rule.SHARED_SUBJECTS
_SUBJECT: Final = rule_subject(_RULE)


class SubjectForm:
    """The form of subjects in one ledger; asks for the rule until the newest version is enforced, and then no more."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._version = 0
        self._read_up_to = ORIGIN

    async def of(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """The messages under the subjects by which to record them now.

        Raises:
            LedgerUnavailableError: the ledger cannot be read.
        """
        newest = RULE_VERSIONS[_RULE]
        if self._version < newest and any(one.subject != shared_subject(one.subject, newest) for one in messages):
            await self._learn()
        return [one._replace(subject=shared_subject(one.subject, self._version)) for one in messages]

    async def _learn(self) -> None:
        last = await self._ledger.last_sequence(_SUBJECT)
        if is_same(last, self._read_up_to):
            return
        # A position that operators skip enforces nothing.
        skipped = set(await skipped_positions(self._ledger))
        async for messages in self._ledger.history(self._ledger.identity.behind, last, _SUBJECT):
            for message in messages:
                if self._ledger.generations.position(message.sequence) not in skipped:
                    self._version = max(self._version, rule_version(message.data))
        self._read_up_to = last
