"""A journal as rows of a snapshot: what its source recorded last, and which numbers it used. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import orjson

from gpuledger.domain.sources.deduplication import Seen
from gpuledger.domain.table import TableSpec
from gpuledger.edge.watchers.decide import LastRecord
from gpuledger.events.catalogue import registry
from gpuledger.events.payload import Payload
from gpuledger.projection.snapshot import SEEN, Layout, Row, seen_of, seen_rows


class RecordedSubject(NamedTuple):
    """The last record of a subject as `LastRecord` has it; the digest in hexadecimal digits."""

    subject: str
    digest: str | None
    uid: str | None
    time: datetime


class HeardPayload(NamedTuple):
    """The payload that somebody listens to, as JSON."""

    subject: str
    type: str
    data: str


class JournalEnd(NamedTuple):
    """The source's last epoch, and the time of its last event if folds reject that."""

    source: str
    epoch: str | None
    rejected_time: datetime | None


RECORDED: Final = TableSpec("recorded", RecordedSubject, ("subject",))
HEARD: Final = TableSpec("heard", HeardPayload, ("subject",))
END: Final = TableSpec("journal_end", JournalEnd, ("source",))
VERSION: Final = 1


class JournalContent(NamedTuple):
    """All that a journal has from the log, behind its position."""

    recorded: dict[str, LastRecord]
    heard: dict[str, Payload]
    seen: Seen
    epoch: str | None
    rejected_time: datetime | None


def journal_layout(source: str) -> Layout:
    """The layout of the snapshots of a source's journal."""
    return Layout(f"journal:{source}", VERSION, (RECORDED, HEARD, END, SEEN))


def rows_of_journal(source: str, content: JournalContent) -> dict[str, list[Row]]:
    """The journal as rows."""
    return {
        RECORDED.name: [
            RecordedSubject(subject, None if one.digest is None else one.digest.hex(), one.uid, one.time)
            for subject, one in content.recorded.items()
        ],
        HEARD.name: [HeardPayload(subject, one.TYPE, one.model_dump_json()) for subject, one in content.heard.items()],
        END.name: [JournalEnd(source, content.epoch, content.rejected_time)],
        SEEN.name: seen_rows(content.seen),
    }


def journal_of_rows(rows: Mapping[str, Iterable[Row]]) -> JournalContent:
    """The journal of such rows."""
    ((_, epoch, rejected_time),) = rows[END.name]
    recorded = {
        subject: LastRecord(None if digest is None else bytes.fromhex(digest), uid, time)
        for subject, digest, uid, time in rows[RECORDED.name]
    }
    heard = {subject: registry.decode(kind, orjson.loads(data)) for subject, kind, data in rows[HEARD.name]}
    return JournalContent(recorded, heard, seen_of(rows[SEEN.name]), epoch, rejected_time)
