"""`gpuledger log tail` and `log show`: the last events of the log, those that follow, or one event in full."""

import re
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.log.rows import VIEW, Row, row_of
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Output, progress, render
from gpuledger.cli.render.rows import steady
from gpuledger.cli.run import run
from gpuledger.cli.times import parse_position
from gpuledger.events.envelope import parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import (
    Offset,
    Position,
    back,
    events_up_to,
    is_after,
    is_origin,
    is_typed,
    order,
)
from gpuledger.events.registry import PREFIX, parse_type
from gpuledger.events.subjects import ALL, ROOT, SHARED_SINCE, escape, origin_of
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.ledger.memory import matcher
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.named_events import names_share, shared_messages_about

SPAN_FIRST = 1024
SPAN_GROWTH = 8

Lines = Annotated[int, typer.Option("-n", "--lines", min=0, help="Number of events to show.")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Show new events as they come, until Ctrl-C.")]


Aggregate = Annotated[str | None, typer.Option("--aggregate", help="Only events of this aggregate, such as device.")]
AggregateId = Annotated[str | None, typer.Option("--id", help="Only events of the aggregate with this id.")]
SourceName = Annotated[str | None, typer.Option("--source", help="Only events that this source recorded.")]
EventType = Annotated[
    str | None, typer.Option("--type", help="Only this event: inserted, device.inserted, or a full type.")
]

ANY = "*"
AGGREGATE_TOKEN = 3
_WORD = re.compile(r"[a-z][a-z-]*")


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events to show: the server matches `subject`; source, full type and name are compared here.

    Where `name` is given, names of its kind may share a subject. `subject` then matches what stands under the name, and
    `shared` all that may be about it.
    """

    subject: str = ALL
    source: str | None = None
    type: str | None = None
    name: str | None = None
    shared: str = ALL

    def accepts(self, message: Message) -> bool:
        """Whether the filter also lets through a message that matches `subject`, or `shared`."""
        if self.source is self.type is self.name is None:
            return True
        try:
            event = parse(message.data)
        except EventError:
            return False
        return (
            self.source in {None, event.source}
            and self.type in {None, event.type}
            and self.name in {None, event.subject}
        )

    @property
    def is_about_name_alone(self) -> bool:
        """Whether the event's type and source do not matter."""
        aggregate = self.shared.split(".")[AGGREGATE_TOKEN]
        return self.source is None and self.shared == f"{ROOT}.*.*.{aggregate}.*.*"

    @property
    def aggregates(self) -> list[str]:
        """The aggregates that may have the name and share a subject."""
        aggregate = self.shared.split(".")[AGGREGATE_TOKEN]
        return sorted(SHARED_SINCE) if aggregate == ANY else [aggregate]


def tail(
    lines: Lines = 20,
    follow: Follow = False,
    aggregate: Aggregate = None,
    aggregate_id: AggregateId = None,
    source: SourceName = None,
    event_type: EventType = None,
    data_dir: DataDir = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show the last events of the log, oldest first."""
    selected = filter_of(aggregate, aggregate_id, source, event_type)
    if not follow:
        run(_show(data_dir, selected, lines, output, headers=not no_headers))
        return
    if output is Output.JSON:
        raise CliError("A JSON array has an end, --follow has none", "Use `-o jsonl`", ExitCode.USAGE)
    with suppress(KeyboardInterrupt):
        run(_follow(data_dir, selected, lines, output, headers=not no_headers))


async def _show(data_dir: Path | None, selected: EventFilter, lines: int, output: Output, *, headers: bool) -> None:
    async with open_backend(data_dir, "log tail", asks=True) as backend:
        last = await last_about(backend, selected, lines)
        render((row_of(message, backend.ledger.generations) for message in last), VIEW, output, headers=headers)


async def _follow(data_dir: Path | None, selected: EventFilter, lines: int, output: Output, *, headers: bool) -> None:
    view = steady(VIEW)
    async with open_backend(data_dir, "log tail --follow", asks=True) as backend:
        ledger = backend.ledger
        head = await ledger.head()
        batch = list(await last_about(backend, selected, lines, head))
        subjects = selected.subject if selected.name is None else selected.shared
        async with ledger.read(after=head, subject_filter=subjects) as reader:
            while True:
                if batch:
                    rows = (row_of(message, ledger.generations) for message in batch)
                    render(rows, view, output, headers=headers, live=True)
                    headers = False
                batch = [message for message in await reader.next_batch() if selected.accepts(message)]


async def last_about(
    backend: Backend, selected: EventFilter, lines: int, head: Offset | None = None
) -> Iterable[Message]:
    """The last messages up to `head` (None: that of now) that are selected, whichever form of subject they have."""
    ledger = backend.ledger
    head = await ledger.head() if head is None else head
    last = await last_messages(ledger, selected, lines, head)
    if not lines or selected.name is None or not await names_share(ledger, selected.aggregates):
        return last
    # What the index knows nothing of leaves any number of a name's events out.
    newest = lines if selected.is_about_name_alone else None
    found = await shared_messages_about(backend, selected.aggregates, selected.name, until=head, newest=newest)
    matches = matcher(selected.shared)
    shared = (one for one in found if matches(one.subject) and selected.accepts(one))
    return sorted([*last, *shared], key=lambda one: order(one.sequence))[-lines:]


async def last_messages(ledger: Ledger, selected: EventFilter, lines: int, head: Offset) -> deque[Message]:
    """The last messages up to `head` that are selected, in the order of the log.

    Looks back further and further, because a log can be read forwards only; memory grows with the answer alone.
    """
    span = max(lines, SPAN_FIRST)
    while lines:
        after = back(head, span)
        found: deque[Message] = deque(maxlen=lines)
        async for batch in ledger.history(after, head, selected.subject):
            found.extend(message for message in batch if selected.accepts(message))
        if len(found) == lines or is_origin(after):
            return found
        span *= SPAN_GROWTH
    return deque()


What = Annotated[str, typer.Argument(metavar="POSITION|ID", help="A position (1500 or 1/1500), or the id of an event.")]
Format = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


def show(what: What, data_dir: DataDir = None, output: Format = Output.YAML, no_headers: NoHeaders = False) -> None:
    """Show one event in full; several, if the log holds the id more than once."""
    rows = run(_find(data_dir, what))
    if not rows:
        raise CliError(f"The log holds no event with the id {what!r}", "Look for it with `gpuledger log tail`")
    render(rows, VIEW, output, headers=not no_headers)


async def _find(data_dir: Path | None, what: str) -> list[Row]:
    async with open_backend(data_dir, "log show", asks=True) as backend:
        if is_typed(what):
            generation, sequence = parse_position(what)
            found = backend.ledger.generations.of(sequence) if generation is None else generation
            return [await _at(backend, found, sequence)]
        return [row_of(message, backend.ledger.generations) async for message in with_id(backend.ledger, what)]


async def _at(backend: Backend, generation: int, sequence: Offset) -> Row:
    if backend.ledger.generations.has(Position(generation, sequence)):
        return row_of(await message_at(backend.ledger, sequence), generation)
    opening = connect_ledger(
        backend.nats_url, name="gpuledger log show", identity=backend.nats_identity, generation=generation
    )
    async with opening as archived:
        return row_of(await message_at(archived, sequence), generation)


async def message_at(ledger: Ledger, sequence: Offset) -> Message:
    """The message at a position.

    Raises:
        CliError: the log has none there.
    """
    head = await ledger.head()
    if is_origin(sequence) or is_after(sequence, head):
        position = ledger.generations.position(sequence)
        last = "it is empty" if is_origin(head) else f"its last event is {ledger.generations.position(head)}"
        raise CliError(f"The log has no event at {position}; {last}", "See `gpuledger log tail`")
    async for batch in ledger.history(back(sequence, 1), sequence):
        return batch[0]
    raise AssertionError(f"the log has no message {sequence}, which lies before its head")


async def with_id(ledger: Ledger, event_id: str) -> AsyncIterator[Message]:
    """Every message with an event of this id; reads the whole log."""
    mark = event_id.encode()
    with progress("Searching", total=events_up_to(await ledger.head()), unit="events") as advance:
        async for batch in ledger.history():
            advance(len(batch))
            for message in batch:
                if mark in message.data and _id_of(message) == event_id:
                    yield message


def _id_of(message: Message) -> str | None:
    try:
        return parse(message.data).id
    except EventError:
        return None


def filter_of(
    aggregate: str | None, aggregate_id: str | None, source: str | None, event_type: str | None
) -> EventFilter:
    """The filter that the options give.

    Raises:
        CliError: one of them can match nothing.
    """
    if aggregate is aggregate_id is source is event_type is None:
        return EventFilter()
    try:
        kind, name = (ANY, ANY) if source is None else origin_of(source)
        token = ANY if aggregate_id is None else escape(aggregate_id)
        of_type, event = _event_tokens(event_type)
    except EventError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error
    if aggregate is not None and of_type not in {ANY, aggregate}:
        raise CliError(f"No event {event_type} is of a {aggregate}", "Leave out --aggregate", ExitCode.USAGE)
    words = [ROOT, kind, escape(name) if source else ANY, _word(aggregate or of_type), token, _word(event)]
    whole = event_type if event_type and event_type.startswith(PREFIX) else None
    named = EventFilter(".".join(words), source, whole)
    if aggregate_id is None or words[AGGREGATE_TOKEN] not in {ANY, *SHARED_SINCE}:
        return named
    return replace(named, name=aggregate_id, shared=".".join((*words[:4], ANY, words[5])))


def _event_tokens(event_type: str | None) -> tuple[str, str]:
    if event_type is None:
        return ANY, ANY
    if event_type.startswith(PREFIX):
        name = parse_type(event_type)
        return name.aggregate, name.event
    aggregate, dot, event = event_type.rpartition(".")
    return (aggregate, event) if dot else (ANY, event)


def _word(text: str) -> str:
    if text != ANY and not _WORD.fullmatch(text):
        raise CliError(f"{text!r} is no name of an event or aggregate", "See `gpuledger log stats`", ExitCode.USAGE)
    return text
