"""Copies a ledger's streams from a NATS server into a folder and back, for `gpuledger log backup` and `log restore`.

Unlike an export, such a copy is the log itself, down to positions and times, so checkpoints continue with it. The
stream that is written to comes back last: until then every command says that the restore is not complete.
"""

from pathlib import Path

from gpuledger.events.position import is_same
from gpuledger.ledger.connect import connected
from gpuledger.ledger.snapshot import StreamCopy, load_stream, read_copy, save_stream
from gpuledger.ledger.stream import ledger_streams, refuse_partitioned, stream_name
from gpuledger.runtime.settings import NatsIdentity
from gpuledger.tools.errors import RequestError, ToolError
from gpuledger.tools.reporting import Reporter

NAME = "gpuledger log backup"


async def back_up(nats_url: str, identity: NatsIdentity, folder: Path, reporter: Reporter) -> list[StreamCopy]:
    """Copy every generation into a new folder.

    Raises:
        ToolError: there is no ledger, or the folder cannot be made.
        PartitionedError: it has several partitions.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    async with connected(nats_url, name=NAME, identity=identity) as connection:
        streams = await ledger_streams(connection)
        if not streams:
            raise ToolError(f"NATS at {connection.address} has no ledger", "Name another server in NATS_URL")
        for info in streams.values():
            refuse_partitioned(info, "Backing up the log")
        part = _new_folder(folder)
        copies = []
        for number in sorted(streams):
            with reporter.progress(f"Copying {stream_name(number)}", unit="bytes") as advance:
                copies.append(
                    await save_stream(connection, stream_name(number), part / stream_name(number), advance.to)
                )
        part.rename(folder)
        return copies


async def bring_back(nats_url: str, identity: NatsIdentity, folder: Path, reporter: Reporter) -> list[StreamCopy]:
    """Give every generation in the folder to a server that has none; one that was interrupted goes on.

    Raises:
        ToolError: the folder holds no ledger, or the server holds another one.
        StreamConfigError: the folder is damaged, or the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    copies = [read_copy(one)[1] for one in _streams_in(folder)]
    async with connected(nats_url, name=NAME, identity=identity) as connection:
        there = {info.config.name: info.state.last_seq for info in (await ledger_streams(connection)).values()}
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


def _streams_in(folder: Path) -> list[Path]:
    """The folders of the generations, in their order."""
    found = sorted(folder.glob("LEDGER_*"), key=lambda one: int(one.name.rpartition("_")[2]))
    first = int(found[0].name.rpartition("_")[2]) if found else 0
    if not found or [one.name for one in found] != [stream_name(first + number) for number in range(len(found))]:
        raise RequestError(f"{folder} holds no copy of a ledger", "Name a folder that `gpuledger log backup` made")
    return found
