"""`gpuledger log skip`: has all projections skip one position for good, because one of them cannot fold its event."""

import sys
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode, visible
from gpuledger.cli.log.tail import message_at
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import message
from gpuledger.cli.run import run
from gpuledger.cli.times import parse_position
from gpuledger.db.engine import connect
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.events.position import Offset, Position, is_at_or_after
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.replay import skipped_positions
from gpuledger.projection.store import ProjectionStore
from gpuledger.tools.log_restore import skip_positions
from gpuledger.tools.queries.backend import Backend, all_projections

Where = Annotated[str, typer.Argument(metavar="POSITION", help="The position to skip, 1500 or 1/1500.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason, which is recorded with your name.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def skip(where: Where, reason: Reason, yes: Yes = False, data_dir: DataDir = None) -> None:
    """Have every projection skip one event for good. The event stays in the log."""
    generation, sequence = parse_position(where)
    if not 0 < len(reason.strip()) <= NAME_LENGTH_MAX:
        raise CliError(f"A reason has 1 to {NAME_LENGTH_MAX} characters", "Give another --reason", ExitCode.USAGE)
    run(_skip(data_dir, generation, sequence, reason.strip(), yes=yes))


async def _skip(data_dir: Path | None, generation: int | None, sequence: Offset, reason: str, *, yes: bool) -> None:
    async with open_backend(data_dir, "log skip") as backend:
        ledger = backend.ledger
        # A log that was restored may have to be skipped in before rows can follow it; another ledger never.
        async with aclosing(FollowedLog(all_projections(), ledger, backend.database_url)) as followed:
            await followed.confirm_ledger()
        position = Position(generation or ledger.generations.of(sequence), sequence)
        if not ledger.generations.has(position):
            hint = f"Name a position of generation {ledger.generation}"
            raise CliError(f"Generation {position.generation} is not the one that is projected", hint)
        found = await message_at(ledger, sequence)
        if position in await skipped_positions(ledger):
            message(f"Position {position} is skipped already.")
            return
        confirm(f"Skip {position} ({found.subject}) for good?", confirmed=yes)
        (recorded,) = await skip_positions(ledger, [(position, reason)])
        message(f"Every projection skips position {position} from now on; recorded at {recorded}.")
        if beyond := await _beyond(backend, sequence):
            message(f"Rows that it made stay until they are rebuilt: run `gpuledger replay` for {', '.join(beyond)}.")


async def _beyond(backend: Backend, sequence: Offset) -> list[str]:
    """The projections that had folded the position already."""
    async with connect(backend.database_url, application_name="gpuledger log skip") as connection:
        checkpoints = {one.name: await ProjectionStore(connection, one).checkpoint() for one in all_projections()}
    return [name for name, one in checkpoints.items() if one and is_at_or_after(one.position, sequence)]


def confirm(question: str, *, confirmed: bool) -> None:
    """Ask the user, unless they gave `--yes`.

    Raises:
        CliError: the answer is no, or there is no terminal to ask.
    """
    if confirmed:
        return
    if not sys.stdin.isatty():
        raise CliError(f"{question} This needs your consent", "Give it with --yes", ExitCode.USAGE)
    if not typer.confirm(visible(question), err=True):
        raise CliError("Nothing was done, as you said no")
