"""Runs a module in a process of its own, for work that must not come between the services of this one."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NoReturn

from gpuledger.runtime.backoff import Backoff, Retries

STOP_TIMEOUT_S: Final = 5.0
"""How long the process may take to end when it is asked to."""


async def run_module(module: str, arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """The process's exit code, and the last line that it wrote to stderr; it ends with whoever waits for it."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        env={**os.environ, **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, written = await child.communicate()
    finally:
        if child.returncode is None:
            await _end(child)
    lines = written.decode(errors="replace").strip().splitlines()
    return child.returncode or 0, lines[-1] if lines else ""


async def keep_looking(look: Callable[[], Awaitable[bool]], look_s: float, backoff: Backoff) -> NoReturn:
    """Look for something to do until cancelled, every `look_s` seconds, or by the backoff's pauses where it failed."""
    retries = Retries(backoff)
    while True:
        is_well = await look()
        await asyncio.sleep(look_s if is_well else retries.pause_s())
        if is_well:
            retries.reset()


async def _end(child: asyncio.subprocess.Process) -> None:
    child.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
