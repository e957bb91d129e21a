"""Which moment a command asks about: now, a time, or how far the log had come; from `--at` and `--as-recorded`."""

from datetime import datetime
from typing import NamedTuple

from gpuledger.cli.backend import Backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.rows import recorded_ns_of
from gpuledger.cli.times import parse_as_recorded, parse_time
from gpuledger.projection.asof import sequence_at


class Moment(NamedTuple):
    """`at` is a time of what happened, `recorded` a position in the log or a time of recording; neither means now."""

    at: datetime | None = None
    recorded: datetime | tuple[int | None, int] | None = None


def moment_of(at: str | None, as_recorded: str | None, now: datetime) -> Moment:
    """The moment that two options name together.

    Raises:
        CliError: both are given, or one cannot be read.
    """
    if at is not None and as_recorded is not None:
        raise CliError("--at and --as-recorded exclude each other", "Choose one", ExitCode.USAGE)
    return Moment(
        None if at is None else parse_time(at, now),
        None if as_recorded is None else parse_as_recorded(as_recorded, now),
    )


async def sequence_of(place: Backend, when: datetime | tuple[int | None, int]) -> int:
    """The sequence that a position, or a time of recording, stands for.

    Raises:
        CliError: the position is of another generation, or lies beyond the end of the log.
    """
    if isinstance(when, datetime):
        return await sequence_at(place.ledger, int(when.timestamp() * 1_000_000_000), recorded_ns_of)
    generation, sequence = when
    head = await place.ledger.head()
    if generation not in (None, place.ledger.generation):
        raise CliError(
            f"The log is at generation {place.ledger.generation}, not {generation}",
            "Positions of an archived generation belong to that archive",
            ExitCode.USAGE,
        )
    if sequence > head:
        raise CliError(f"The log ends at position {place.ledger.generation}/{head}", code=ExitCode.USAGE)
    return sequence
