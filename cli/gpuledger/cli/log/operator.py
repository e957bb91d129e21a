"""What an operator's own events need: who that is, and a word of consent before something is done for good."""

import getpass
import sys

import typer

from gpuledger.cli.errors import CliError, ExitCode, visible
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.ledger.api import Ledger, Outgoing, Position
from gpuledger.runtime.clock import random_id, system_clock

LOG = "log"
"""The subject of events about the log itself."""


def operator() -> str:
    """The source of what the person at the keyboard records."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    return f"/operators/{name.replace('/', '_') or 'unknown'}"


def consent(question: str, *, given: bool) -> None:
    """Ask, unless `--yes` was given.

    Raises:
        CliError: the answer is no, or nobody can be asked.
    """
    if given:
        return
    if not sys.stdin.isatty():
        raise CliError(f"{question} This needs your consent", "Give it with --yes", ExitCode.USAGE)
    if not typer.confirm(visible(question), err=True):
        raise CliError("Nothing was done, as you said no")


async def skip_positions(ledger: Ledger, skips: list[tuple[Position, str]]) -> list[Position]:
    """Record that positions are to be passed over, each with its reason; returns where that was recorded."""
    source, epoch, now = operator(), random_id(), system_clock()
    messages = []
    for number, (position, reason) in enumerate(skips, 1):
        data = SourcePositionSkipped(generation=position.generation, sequence=position.sequence, reason=reason)
        event = Event(random_id(), source, data.TYPE, LOG, now, data, epoch, number)
        messages.append(Outgoing(nats_subject_of(event), event.id, encode(event)))
    return [Position(ledger.generation, receipt.sequence) for receipt in await ledger.publish_many(messages)]
