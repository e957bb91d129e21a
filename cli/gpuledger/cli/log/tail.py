"""`gpuledger log tail`: the last events of the log, and those that come."""

from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.log.filters import Aggregate, AggregateId, EventType, Filter, SourceName, filter_of
from gpuledger.cli.log.rows import VIEW, row_of
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Output, render
from gpuledger.cli.render.rows import steady
from gpuledger.cli.run import run
from gpuledger.ledger.api import Ledger, Message

SPAN_FIRST = 1024
SPAN_GROWTH = 8

Lines = Annotated[int, typer.Option("-n", "--lines", min=0, help="How many of the last events.")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on with every event that comes, until Ctrl-C.")]


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
    wanted = filter_of(aggregate, aggregate_id, source, event_type)
    if not follow:
        run(_show(data_dir, wanted, lines, output, headers=not no_headers))
        return
    if output is Output.JSON:
        raise CliError("A JSON array has an end, --follow has none", "Use `-o jsonl`", ExitCode.USAGE)
    with suppress(KeyboardInterrupt):
        run(_follow(data_dir, wanted, lines, output, headers=not no_headers))


async def _show(data_dir: Path | None, wanted: Filter, lines: int, output: Output, *, headers: bool) -> None:
    async with open_backend(data_dir, "log tail") as backend:
        last = await last_messages(backend.ledger, wanted, lines, await backend.ledger.head())
        render((row_of(message, backend.ledger.generation) for message in last), VIEW, output, headers=headers)


async def _follow(data_dir: Path | None, wanted: Filter, lines: int, output: Output, *, headers: bool) -> None:
    view = steady(VIEW)
    async with open_backend(data_dir, "log tail --follow") as backend:
        ledger = backend.ledger
        head = await ledger.head()
        batch = list(await last_messages(ledger, wanted, lines, head))
        async with ledger.read(after=head, subject_filter=wanted.subject) as reader:
            while True:
                if batch:
                    rows = (row_of(message, ledger.generation) for message in batch)
                    render(rows, view, output, headers=headers, live=True)
                    headers = False
                batch = [message for message in await reader.next_batch() if wanted.accepts(message)]


async def last_messages(ledger: Ledger, wanted: Filter, lines: int, head: int) -> deque[Message]:
    """The last messages up to `head` that are wanted, in the order of the log.

    Looks back further and further, because a log is read forwards only; memory is that of the answer.
    """
    span = max(lines, SPAN_FIRST)
    while lines:
        after = max(0, head - span)
        found: deque[Message] = deque(maxlen=lines)
        async for batch in ledger.history(after, head, wanted.subject):
            found.extend(message for message in batch if wanted.accepts(message))
        if len(found) == lines or after == 0:
            return found
        span *= SPAN_GROWTH
    return deque()
