"""`gpuledger log stats` and `log gaps`: how much the log holds of what and from whom, and which events are missing."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gpuledger.cli.backend import open_backend
from gpuledger.cli.log.rows import UNDECODABLE, Row, event_name
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, progress, render
from gpuledger.cli.run import run
from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.fact import time_of_ns
from gpuledger.events.envelope import Undecoded, parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import events_up_to
from gpuledger.ledger.api import Message
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections, read

GROUPS_MAX = 1_000
"""How many events, and sources, are counted by name; a hostile log may hold any number."""

OTHERS = "(others)"

STATISTICS = View(
    "statistic",
    (
        Column("of"),
        Column("name"),
        Column("events", right=True),
        Column("bytes", right=True),
        Column("first time"),
        Column("last time"),
        Column("first recorded", wide=True),
        Column("last recorded", wide=True),
    ),
)


@dataclass(slots=True)
class Tally:
    """The counts of a group. Times are None while no event of the group could be decoded."""

    events: int = 0
    bytes: int = 0
    first_time: datetime | None = None
    last_time: datetime | None = None
    first_recorded_ns: int = 0
    last_recorded_ns: int = 0

    def add(self, message: Message, event: Undecoded | None) -> None:
        """Count a message; messages come in the order of the log."""
        self.first_recorded_ns = self.first_recorded_ns if self.events else message.recorded_ns
        self.last_recorded_ns = message.recorded_ns
        self.events += 1
        self.bytes += len(message.data)
        if event is not None:
            self.first_time = event.time if self.first_time is None else min(self.first_time, event.time)
            self.last_time = event.time if self.last_time is None else max(self.last_time, event.time)

    def row(self, of: str, name: str) -> Row:
        """The group's row."""
        recorded = (self.first_recorded_ns, self.last_recorded_ns)
        first, last = (time_of_ns(ns) if self.events else None for ns in recorded)
        times: Row = {"first_time": self.first_time, "last_time": self.last_time}
        return {
            "of": of,
            "name": name,
            "events": self.events,
            "bytes": self.bytes,
            **times,
            "first_recorded": first,
            "last_recorded": last,
        }


@dataclass(slots=True)
class Statistics:
    """The whole log, by event and by source."""

    log: Tally = field(default_factory=Tally)
    by_event: dict[str, Tally] = field(default_factory=dict)
    by_source: dict[str, Tally] = field(default_factory=dict)

    def add(self, message: Message) -> None:
        """Count a message."""
        event: Undecoded | None
        try:
            event = parse(message.data)
            name, source = event_name(event), event.source
        except EventError:
            event, name, source = None, UNDECODABLE, UNDECODABLE
        for tally in (self.log, _group(self.by_event, name), _group(self.by_source, source)):
            tally.add(message, event)

    def rows(self, generation: int) -> list[Row]:
        """The log first, then events and sources, the most frequent first."""
        rows = [self.log.row("log", f"generation {generation}")]
        for of, groups in (("event", self.by_event), ("source", self.by_source)):
            ordered = sorted(groups.items(), key=lambda group: (-group[1].events, group[0]))
            rows += [tally.row(of, name) for name, tally in ordered]
        return rows


def stats(data_dir: DataDir = None, output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """Count the events of the log by event and source. Reads the whole log."""
    render(run(_stats(data_dir)), STATISTICS, output, headers=not no_headers)


async def _stats(data_dir: Path | None) -> list[Row]:
    statistics = Statistics()
    async with open_backend(data_dir, "log stats", asks=True) as backend:
        with progress("Counting", total=events_up_to(await backend.ledger.head()), unit="events") as advance:
            async for batch in backend.ledger.history():
                for message in batch:
                    statistics.add(message)
                advance(len(batch))
        generation = backend.ledger.generation
        archived = [await _archived(backend, number) for number in range(1, backend.ledger.generations.first)]
    return [*statistics.rows(generation), *archived]


async def _archived(backend: Backend, generation: int) -> Row:
    """An earlier generation."""
    opening = connect_ledger(
        backend.nats_url, name="gpuledger log stats", identity=backend.nats_identity, generation=generation
    )
    async with opening as ledger:
        row = Tally().row("archived", f"generation {generation}")
        return row | {"events": events_up_to(await ledger.head()), "bytes": None}


def _group(groups: dict[str, Tally], name: str) -> Tally:
    return groups.setdefault(name if name in groups or len(groups) < GROUPS_MAX else OTHERS, Tally())


GAPS = View(
    "gap",
    (
        Column("state"),
        Column("source"),
        Column("epoch", wide=True),
        Column("first", right=True),
        Column("last", right=True),
        Column("missing", right=True),
        Column("since"),
        Column("closed", key="closed_at"),
    ),
)

_QUERY = """
    SELECT CASE WHEN gap.closed_at IS NOT NULL THEN 'closed' WHEN gap.source IS NULL THEN 'waiting' ELSE 'open' END,
        source, epoch, first,
        CASE WHEN NOT gap.unknown_length OR missing.last IS NOT NULL THEN greatest(gap.last, missing.last) END,
        CASE WHEN gap.closed_at IS NOT NULL THEN 0 WHEN NOT gap.unknown_length THEN coalesce(missing.left, 0)
            ELSE missing.left END,
        coalesce(gap.detected_at, missing.noticed_at), gap.closed_at
    FROM gpuledger_live.gap AS gap
    FULL JOIN gpuledger_live.missing AS missing USING (source, epoch, first)
    ORDER BY 7, source, epoch, first
"""
_KEYS = ("state", "source", "epoch", "first", "last", "missing", "since", "closed_at")


def gaps(data_dir: DataDir = None, output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """Show events that sources have numbered and that are missing in the log. Gaps are no failure of the command.

    A gap is `waiting` for the first seconds, `open` once its events count as lost, and `closed` when they arrived.
    Without a last number its length is unknown: the source began another epoch, and did not say how far this one went.
    """
    render(run(_gaps(data_dir)), GAPS, output, headers=not no_headers)


async def _gaps(data_dir: Path | None) -> list[Row]:
    async def ask(connection: AsyncConnection) -> list[Row]:
        cursor = await connection.execute(_QUERY.encode())
        return [dict(zip(_KEYS, row, strict=True)) for row in await cursor.fetchall()]

    async with open_backend(data_dir, "log gaps", asks=True) as backend:
        await bring_current(backend, named_projections(["sources"]))
        return await read(backend, ask, application_name="gpuledger log gaps")
