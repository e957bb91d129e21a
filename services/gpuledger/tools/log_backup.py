"""Copies a ledger's streams from a NATS server into a folder and back, for `gpuledger log backup` and `log restore`.

Unlike an export, such a copy is the log itself, down to positions and times, so checkpoints continue with it. The
stream that is written to comes back last: until then every command says that the restore is not complete. Of several
partitions that is the one of their order, which is copied before them: they hold what it names, and what is newer comes
into the log as what partitions record while nobody puts it there.
"""

import re
from pathlib import Path
from typing import Final

from gpuledger.events.position import is_same
from gpuledger.ledger.connect import connected
from gpuledger.ledger.partitions import partition_streams, partitions_of
from gpuledger.ledger.single import all_streams
from gpuledger.ledger.snapshot import StreamCopy, load_stream, read_copy, save_stream
from gpuledger.ledger.stream import ledger_streams, stream_name
from gpuledger.runtime.settings import NatsIdentity
from gpuledger.tools.errors import RequestError, ToolError
from gpuledger.tools.reporting import Reporter

NAME = "gpuledger log backup"

LEDGER: Final = "LEDGER_"
"""What the names of all streams of a ledger begin with."""

GENERATION: Final = re.compile(rf"{LEDGER}([1-9][0-9]*)")


async def back_up(nats_url: str, identity: NatsIdentity, folder: Path, reporter: Reporter) -> list[StreamCopy]:
    """Copy every generation into a new folder.

    Raises:
        ToolError: there is no ledger, or the folder cannot be made.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    async with connected(nats_url, name=NAME, identity=identity) as connection:
        streams = await ledger_streams(connection)
        if not streams:
            raise ToolError(f"NATS at {connection.address} has no ledger", "Name another server in NATS_URL")
        part = _new_folder(folder)
        copies = []
        for number in sorted(streams):
            for name in generation_streams(stream_name(number), partitions_of(streams[number].config.metadata)):
                with reporter.progress(f"Copying {name}", unit="bytes") as advance:
                    copies.append(await save_stream(connection, name, part / name, advance.to))
        part.rename(folder)
        return copies


async def bring_back(nats_url: str, identity: NatsIdentity, folder: Path, reporter: Reporter) -> list[StreamCopy]:
    """Give every generation in the folder to a server that has none; one that was interrupted goes on.

    The ledger has as many partitions as the one that was copied.

    Raises:
        ToolError: the folder holds no ledger, or the server holds another one.
        StreamConfigError: the folder is damaged, or the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    copies = _copies_in(folder)
    async with connected(nats_url, name=NAME, identity=identity) as connection:
        streams = await all_streams(connection)
        there = {name: info.state.last_seq for name, info in streams.items() if name.startswith(LEDGER)}
        for copy in copies:
            if (copy.name in there and not is_same(there[copy.name], copy.last_sequence)) or copies[-1].name in there:
                raise ToolError(
                    f"NATS at {connection.address} has a ledger; a restore never replaces one",
                    "Stop its server and move its JetStream folder away, or name an empty server in NATS_URL",
                )
        for copy in copies:
            if copy.name not in there:
                total = copy.data_bytes
                with reporter.progress(f"Restoring {copy.name}", total=total, unit="bytes") as advance:
                    await load_stream(connection, folder / copy.name, advance.to)
        return copies


def generation_streams(stream: str, partitions: int) -> list[str]:
    """The streams of a generation, given the name of its own, which is the first."""
    return [stream, *(partition_streams(stream, partitions) if partitions > 1 else ())]


def _new_folder(folder: Path) -> Path:
    """A folder beside it, which gets its name once it is complete."""
    part = folder.with_name(f"{folder.name}.part")
    if folder.exists() or part.exists():
        raise RequestError(f"{folder if folder.exists() else part} exists", "Choose another name, or remove it first")
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise ToolError(f"{part} cannot be made: {error.strerror}", "Name another folder") from error
    return part


def _copies_in(folder: Path) -> list[StreamCopy]:
    """The copies of the generations in their order, of each the partitions first."""
    names = {one.name for one in folder.glob(f"{LEDGER}*")}
    numbers = sorted(int(match[1]) for one in names if (match := GENERATION.fullmatch(one)))
    copies: list[StreamCopy] = []
    for number in numbers:
        about, copy = read_copy(folder / stream_name(number))
        parts = generation_streams(copy.name, partitions_of(about["config"].get("metadata")))[1:]
        copies += [*(read_copy(folder / one)[1] for one in parts), copy]
    first = numbers[0] if numbers else 0
    is_whole = numbers == list(range(first, first + len(numbers)))
    if not numbers or not is_whole or names != {one.name for one in copies}:
        raise RequestError(f"{folder} holds no copy of a ledger", "Name a folder that `gpuledger log backup` made")
    return copies
