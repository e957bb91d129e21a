"""Records documents of rules in the name of the user of the terminal, unless the same document is in force already.

What is in force is read from the log, so that nobody has to project to apply one, and so that it may be applied again
by whatever installs a release: a document that is recorded anew makes what was reported before it lead to nothing.
"""

from contextlib import suppress
from typing import Final, NamedTuple

from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.position import ORIGIN, Offset, Position, is_origin
from gpuledger.events.publishing import SourceKind
from gpuledger.events.quarantine import QUARANTINE, QuarantineRulesApplied
from gpuledger.events.remediation import REMEDIATION, RemediationRulesApplied
from gpuledger.events.subjects import subject_of
from gpuledger.ledger.api import Expected, Ledger
from gpuledger.ledger.errors import SequenceConflictError
from gpuledger.projection.replay import skipped_positions
from gpuledger.tools.errors import ToolBusyError
from gpuledger.tools.operators import record
from gpuledger.tools.queries.backend import Backend

RulesDocument = QuarantineRulesApplied | RemediationRulesApplied

VERSION_SHOWN_CHARS: Final = 12
"""How much of a document's version people are shown."""

ATTEMPTS_MAX: Final = 5
"""How often a document is compared anew with the last one, where somebody else has recorded one meanwhile."""

_OPERATOR: Final = f"/{SourceKind.OPERATORS}/any"
"""All operators publish by one subject."""


def _nats_subject(document: RulesDocument | type[RulesDocument], subject: str) -> str:
    return subject_of(_OPERATOR, document.AGGREGATE, subject, document.EVENT)


DOCUMENT_SUBJECTS: Final = (
    _nats_subject(QuarantineRulesApplied, QUARANTINE),
    _nats_subject(RemediationRulesApplied, REMEDIATION),
)
"""Where documents are recorded, whoever applies them."""


class Applied(NamedTuple):
    """The position from which on a document is in force, and whether it was recorded just now."""

    at: Position
    is_new: bool


async def apply_document(backend: Backend, document: RulesDocument, subject: str) -> Applied:
    """Put a document that was checked into force, in place of all others about the subject.

    Raises:
        ToolBusyError: others record documents all the while, or one is recorded that the log does not have yet.
    """
    nats_subject = _nats_subject(document, subject)
    for _ in range(ATTEMPTS_MAX):
        last = await backend.ledger.last_sequence(nats_subject)
        standing = await _standing(backend.ledger, last, document.digest)
        if standing is not None:
            return Applied(standing, is_new=False)
        with suppress(SequenceConflictError):
            expected = Expected(nats_subject, last)
            return Applied(await record(backend.ledger, subject, document, expected=expected), is_new=True)
    raise ToolBusyError(
        "Another document is being recorded", "Look which rules are in force, and run the command again"
    )


async def apply_first(ledger: Ledger, document: RulesDocument, subject: str) -> Position | None:
    """Put a document into force where the ledger has had none; returns from where on, or None."""
    nats_subject = _nats_subject(document, subject)
    if not is_origin(await ledger.last_sequence(nats_subject)):
        return None
    with suppress(SequenceConflictError):
        return await record(ledger, subject, document, expected=Expected(nats_subject, ORIGIN))
    return None


def outcome_text(applied: Applied, what: str, document: RulesDocument) -> str:
    """What became of a document, in a sentence; `what` is what it has, such as `3 rulesets`."""
    version = document.digest[:VERSION_SHOWN_CHARS]
    if applied.is_new:
        return f"{what} of {document.file} are in force, version {version}, from {applied.at} on."
    return f"{what} of {document.file} are in force since {applied.at}, version {version}; nothing was recorded."


async def _standing(ledger: Ledger, last: Offset, digest: str) -> Position | None:
    """Where the last document of a subject stands, if it is of this version and counts."""
    message = None if is_origin(last) else await ledger.message_at(last)
    if message is None:
        return None
    at = ledger.generations.position(last)
    try:
        event = decode(message.data)
    except EventError:
        return None
    is_same = isinstance(event.data, RulesDocument) and event.data.digest == digest
    return at if is_same and not event.imported and at not in await skipped_positions(ledger) else None
