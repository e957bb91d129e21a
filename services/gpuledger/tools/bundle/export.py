"""Exports an incident as a bundle: finds its events in the ledger, redacts them, and has them written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.health.incidents import incident_id
from gpuledger.domain.health.rows import INCIDENT, REPORT
from gpuledger.domain.workloads.allocations import HISTORY, REPORTS
from gpuledger.events.catalogue import registry
from gpuledger.events.digests import digest_of
from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.position import ORIGIN, Offset, back, number_of, order
from gpuledger.events.subjects import aggregate_filter
from gpuledger.ledger.api import Message
from gpuledger.tools.bundle.lines import (
    EVENT_BYTES_MAX,
    EVENTS_MAX,
    LINE_BYTES_MAX,
    EventLine,
    Head,
    Recorded,
    Redacted,
    Withheld,
)
from gpuledger.tools.bundle.redaction import Class, redact
from gpuledger.tools.bundle.select import Bounds, Candidate, candidates, chosen, incident_name
from gpuledger.tools.bundle.verify import Bundle
from gpuledger.tools.bundle.write import Parts, seals_over, write_bundle
from gpuledger.tools.errors import RequestError
from gpuledger.tools.incidents import HOLDERS_MAX
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections, read
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.rows import rows_where

BEFORE_FIRST_MAX: Final = 10_000
"""How many messages of the log before the row of the first report are looked at.

Reports of one time are one row, which has the place of the last, and clocks differ.
"""

_PLACES: Final = f"""
SELECT min(position) FROM gpuledger_live.{REPORT.name}
WHERE scope = %(scope)s AND entity = %(entity)s AND reported_at >= %(opened_at)s
    AND (%(ended_at)s::timestamptz IS NULL OR reported_at <= %(ended_at)s)
"""  # noqa: S608 - names of tables
_ALLOCATIONS: Final = f"""
SELECT DISTINCT report.position FROM gpuledger_live.{REPORTS.name} AS report, (
    SELECT allocation, valid_from, valid_to FROM gpuledger_live.{HISTORY.name}
    WHERE device = %(device)s AND (%(ended_at)s::timestamptz IS NULL OR valid_from <= %(ended_at)s)
        AND (valid_to IS NULL OR valid_to > %(opened_at)s)
    ORDER BY valid_from, allocation LIMIT {HOLDERS_MAX}
) AS held
WHERE report.allocation = held.allocation AND report.reported_at IN (held.valid_from, held.valid_to)
"""  # noqa: S608 - names of tables, and a number


class ExportOptions(NamedTuple):
    """What becomes of the events: classes of values that are redacted under a salt, types that are withheld."""

    classes: frozenset[Class] = frozenset()
    salt: bytes = b""
    withheld: frozenset[str] = frozenset()
    key: Ed25519PrivateKey | None = None


def event_type(name: str) -> str:
    """The type that a name such as `node.labelled` means.

    Raises:
        RequestError: there is no such event.
    """
    for model in registry.models():
        if name in (model.TYPE, f"{model.AGGREGATE}.{model.EVENT}"):
            return model.TYPE
    raise RequestError(f"There is no event {name!r}", "Name one as `gpuledger log tail` does, such as node.labelled")


async def export_incident(backend: Backend, incident: str, path: Path, options: ExportOptions) -> Bundle | None:
    """Write the bundle of an incident and check it; None where there is no such incident.

    Raises:
        RequestError: it has more events than a bundle may have, or the file cannot be written.
        ToolError: the log is not what was sealed.
    """
    found = await _found(backend, incident)
    if found is None:
        return None
    bounds, first, held = found
    head = await backend.ledger.head()
    events = chosen(candidates(await _messages(backend, bounds, first, head, held)), bounds)
    size = sum(len(one.message.data) for one in events)
    if len(events) > EVENTS_MAX or size > EVENT_BYTES_MAX:
        raise RequestError(
            f"The incident has {len(events):,} events of {size:,} bytes, and a bundle may have {EVENTS_MAX:,} of "
            f"{EVENT_BYTES_MAX:,}",
            "`gpuledger log export` writes the whole log",
        )
    lines, commitments, name = _event_lines(events, bounds, options)
    seals = await seals_over(backend.ledger, [one.message.sequence for one in events], head)
    parts = Parts(backend.ledger, {one.at: one for one in lines}, seals)
    identity = backend.ledger.identity
    redacted = sorted(one.value for one in options.classes)
    begun = [(number, number_of(behind)) for number, behind in backend.ledger.generations.begun]
    first_line = Head(ledger=identity.ledger_id, generations=begun, incident=name, redacted=redacted)
    return await write_bundle(path, first_line, parts, commitments, options.key)


async def _found(backend: Backend, incident: str) -> tuple[Bounds, Offset, list[Offset]] | None:
    """The bounds of an incident, the place of its first report, and the places of reports on containers."""
    await bring_current(backend, named_projections(["incidents", "allocations"]))

    async def ask(connection: AsyncConnection) -> tuple[Bounds, Offset, list[Offset]] | None:
        rows = await rows_where(connection, INCIDENT, {"incident": incident}, limit=1)
        if not rows:
            return None
        (row,) = rows
        at = await (await connection.execute(_PLACES.encode(), dict(row))).fetchone()
        held = await (await connection.execute(_ALLOCATIONS.encode(), dict(row))).fetchall() if row["device"] else []
        assert at is not None, "a minimum is one row"
        return _bounds(row), at[0], [one[0] for one in held]

    return await read(backend, ask, application_name="gpuledger incident export")


def _bounds(row: RowDict) -> Bounds:
    return Bounds._make(row[name] for name in Bounds._fields)


async def _messages(
    backend: Backend, bounds: Bounds, first: Offset, head: Offset, held: Sequence[Offset]
) -> list[Message]:
    """What may belong to the incident, in the order of the log."""
    ledger, behind = backend.ledger, back(first, BEFORE_FIRST_MAX)
    found: dict[Offset, Message] = {}
    subjects = [(behind, aggregate_filter("node", bounds.node)), (ORIGIN, aggregate_filter("quarantine"))]
    if bounds.device is not None:
        subjects.append((behind, aggregate_filter("device", bounds.device)))
    for after, subject in subjects:
        async for messages in ledger.history(after, head, subject):
            found.update((one.sequence, one) for one in messages)
    for message in await ledger.messages_at(sorted(set(held), key=order)):
        if message is not None:
            found[message.sequence] = message
    return [found[place] for place in sorted(found, key=order)]


def _event_lines(
    events: Sequence[Candidate], bounds: Bounds, options: ExportOptions
) -> tuple[list[EventLine], dict[str, str], str]:
    """The lines of the events, the commitments, and the incident's id as it follows from these events."""
    if not options.classes:
        name = incident_id(bounds.scope, bounds.entity, bounds.opened_at)
        return [_line(one, None, options.withheld) for one in events], {}, name
    hidden = (at for at, one in enumerate(events) if one.event.type in options.withheld)
    done = redact([one.message.data for one in events], options.classes, options.salt, hidden)
    lines = [_line(one, done.changed.get(at), options.withheld) for at, one in enumerate(events)]
    shown = (
        (one.event, decode(line.data.encode()))
        for one, line in zip(events, lines, strict=True)
        if not isinstance(line, Withheld)
    )
    return lines, dict(done.commitments), incident_name(shown, bounds)


def _line(one: Candidate, changed: bytes | None, withheld: frozenset[str]) -> EventLine:
    message, at = one.message, number_of(one.message.sequence)
    digest = digest_of(message.subject, message.data)
    hidden = Withheld(at=at, digest=digest, type=one.event.type)
    if one.event.type in withheld or len(message.data) * 2 > LINE_BYTES_MAX:
        return hidden
    if changed is None:
        return Recorded(at=at, recorded_ns=message.recorded_ns, subject=message.subject, data=message.data.decode())
    try:
        decode(changed)
    except EventError:
        return hidden  # A pseudonym does not fit the field, which none of ours has.
    return Redacted(at=at, recorded_ns=message.recorded_ns, digest=digest, data=changed.decode())
