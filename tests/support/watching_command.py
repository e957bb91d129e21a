"""A command that watches, in a process of its own, and the lines that it prints."""

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from support.ledgers import DEADLINE_S
from support.up import COMMAND

INTERRUPTED = 130


@asynccontextmanager
async def watching(environ: Mapping[str, str], *arguments: str) -> AsyncIterator[Process]:
    """The command, interrupted at the end as by Ctrl-C."""
    process = await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=PIPE, stderr=PIPE, env=dict(environ))
    try:
        yield process
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == INTERRUPTED
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def next_line(process: Process) -> str:
    """The next line of stdout, without its end."""
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        return (await process.stdout.readline()).decode().rstrip("\n")
