"""`gpuledger log show`: one event in full, by its position or by its id."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError
from gpuledger.cli.log.rows import VIEW, Row, row_of
from gpuledger.cli.options import DataDir, NoHeaders
from gpuledger.cli.render import Output, progress, render
from gpuledger.cli.run import run
from gpuledger.cli.times import parse_position
from gpuledger.events.envelope import parse
from gpuledger.events.errors import EventError
from gpuledger.ledger.api import Ledger, Message, Position
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.tools.queries.backend import Backend

_POSITION = re.compile(r"[0-9]+(/[0-9]+)?")

What = Annotated[str, typer.Argument(metavar="POSITION|ID", help="A position (1500 or 1/1500), or an event's id.")]
Format = Annotated[Output, typer.Option("--output", "-o", help="How to show it.")]


def show(what: What, data_dir: DataDir = None, output: Format = Output.YAML, no_headers: NoHeaders = False) -> None:
    """Show one event in full; several, where the log holds the id more than once."""
    rows = run(_find(data_dir, what))
    if not rows:
        raise CliError(f"The log holds no event with the id {what!r}", "Look for it with `gpuledger log tail`")
    render(rows, VIEW, output, headers=not no_headers)


async def _find(data_dir: Path | None, what: str) -> list[Row]:
    async with open_backend(data_dir, "log show") as backend:
        if _POSITION.fullmatch(what):
            generation, sequence = parse_position(what)
            return [await _at(backend, generation or backend.ledger.generation, sequence)]
        return [row_of(message, backend.ledger.generation) async for message in with_id(backend.ledger, what)]


async def _at(backend: Backend, generation: int, sequence: int) -> Row:
    if generation == backend.ledger.generation:
        return row_of(await message_at(backend.ledger, sequence), generation)
    async with connect_ledger(backend.nats_url, name="gpuledger log show", generation=generation) as archived:
        return row_of(await message_at(archived, sequence), generation)


async def message_at(ledger: Ledger, sequence: int) -> Message:
    """The message at a position.

    Raises:
        CliError: the log has none there.
    """
    head = await ledger.head()
    if not 0 < sequence <= head:
        position = Position(ledger.generation, sequence)
        last = f"its last event is {Position(ledger.generation, head)}" if head else "it is empty"
        raise CliError(f"The log has no event at {position}; {last}", "See `gpuledger log tail`")
    async for batch in ledger.history(sequence - 1, sequence):
        return batch[0]
    raise AssertionError(f"the log has no message {sequence}, which lies before its head")


async def with_id(ledger: Ledger, event_id: str) -> AsyncIterator[Message]:
    """Every message that carries an event of this id; reads the whole log."""
    mark = event_id.encode()
    with progress("Searching", total=await ledger.head(), unit="events") as advance:
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
