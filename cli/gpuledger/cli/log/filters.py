"""Which events a person asked for, as a subject filter for the server and a look at what that lets through."""

import re
from dataclasses import dataclass
from typing import Annotated

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.events.envelope import parse
from gpuledger.events.errors import EventError
from gpuledger.events.registry import PREFIX, parse_type
from gpuledger.events.subjects import ALL, ROOT, escape, origin_of
from gpuledger.ledger.api import Message

Aggregate = Annotated[str | None, typer.Option("--aggregate", help="Only events of this kind of thing, as device.")]
AggregateId = Annotated[str | None, typer.Option("--id", help="Only events about the thing with this id.")]
SourceName = Annotated[str | None, typer.Option("--source", help="Only what this source recorded.")]
EventType = Annotated[
    str | None, typer.Option("--type", help="Only this event: inserted, device.inserted, or a whole type.")
]

ANY = "*"
_WORD = re.compile(r"[a-z][a-z-]*")


@dataclass(frozen=True, slots=True)
class Filter:
    """`subject` is what the server matches; source and type (where given in full) are compared here."""

    subject: str = ALL
    source: str | None = None
    type: str | None = None

    def accepts(self, message: Message) -> bool:
        """Whether a message that the server let through is one of those asked for."""
        if self.source is None and self.type is None:
            return True
        try:
            event = parse(message.data)
        except EventError:
            return False
        return self.source in {None, event.source} and self.type in {None, event.type}


def filter_of(aggregate: str | None, aggregate_id: str | None, source: str | None, event_type: str | None) -> Filter:
    """The filter that the options describe.

    Raises:
        CliError: one of them cannot match anything.
    """
    if aggregate is aggregate_id is source is event_type is None:
        return Filter()
    try:
        kind, name = (ANY, ANY) if source is None else origin_of(source)
        token = ANY if aggregate_id is None else escape(aggregate_id)
        of_type, event = _event_tokens(event_type)
    except EventError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error
    if aggregate is not None and of_type not in {ANY, aggregate}:
        raise CliError(f"No event {event_type} is of a {aggregate}", "Leave out --aggregate", ExitCode.USAGE)
    words = ROOT, kind, escape(name) if source else ANY, _word(aggregate or of_type), token, _word(event)
    whole = event_type if event_type and event_type.startswith(PREFIX) else None
    return Filter(".".join(words), source, whole)


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
