"""Runs programs of others, with bounds of time and output; none is left behind."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from gpuledger.preflight.errors import NotRunError

OUTPUT_BYTES_MAX: Final = 8 * 1024 * 1024
"""How much is kept of a program's output: its end."""

ENDING_MAX_S: Final = 5.0
"""How long a program has to end after SIGTERM."""

_CHUNK_BYTES: Final = 64 * 1024


class ProgramOutput(NamedTuple):
    """What a program printed, stdout and stderr; `code` None: it did not end in time, and was ended."""

    code: int | None
    text: str
    errors: str

    @property
    def all(self) -> str:
        """Both, one after the other."""
        return f"{self.text}\n{self.errors}"


class RunProgram(Protocol):
    """Runs a program of the path."""

    async def __call__(self, arguments: Sequence[str], timeout_s: float, environ: Mapping[str, str]) -> ProgramOutput:
        """Run a program in the given environment, whose path has it.

        Raises:
            NotRunError: there is no such program.
        """
        ...


async def run_program(arguments: Sequence[str], timeout_s: float, environ: Mapping[str, str]) -> ProgramOutput:
    """Run a program in a process group of its own, which ends with it; see `RunProgram`."""
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )
    except OSError as error:
        raise NotRunError(
            f"{arguments[0]} cannot be run: {error.strerror}. Use an image that has it for this check."
        ) from error
    outputs = [asyncio.create_task(_end_of(stream)) for stream in (process.stdout, process.stderr) if stream]
    try:
        done = await _within(process, timeout_s)
    finally:
        await _end(process)
        text, errors = [bytes(part).decode("utf-8", "replace") for part in await asyncio.gather(*outputs)]
    return ProgramOutput(process.returncode if done else None, text, errors)


async def _within(process: asyncio.subprocess.Process, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the whole group: first asked, then killed. Its children may outlive a process that ended by itself."""
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        await _within(process, ENDING_MAX_S)
    _signal(process.pid, signal.SIGKILL)
    await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


async def _end_of(stream: asyncio.StreamReader) -> bytearray:
    kept = bytearray()
    while chunk := await stream.read(_CHUNK_BYTES):
        kept += chunk
        if len(kept) > 2 * OUTPUT_BYTES_MAX:
            del kept[:-OUTPUT_BYTES_MAX]
    return kept[-OUTPUT_BYTES_MAX:]
