"""Commands as a person runs them: a process each, with what it took."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Mapping, Sequence
from time import perf_counter, process_time
from typing import NamedTuple

from bench.processes import CLI


class Taken(NamedTuple):
    """Seconds from start to end, and of the processors meanwhile; those of servers are not in it."""

    wall_s: float
    busy_s: float


async def took_s(work: Awaitable[object]) -> Taken:
    """What work of this process takes."""
    began, began_busy = perf_counter(), process_time()
    await work
    return Taken(perf_counter() - began, process_time() - began_busy)


async def command(arguments: Sequence[str], environment: Mapping[str, str]) -> Taken:
    """Run a command of gpuledger, whose rows nobody reads."""
    return await program(("-c", CLI, *arguments), environment)


async def program(arguments: Sequence[str], environment: Mapping[str, str]) -> Taken:
    """Run a Python of its own.

    Raises:
        subprocess.CalledProcessError: it fails.
    """
    return await asyncio.to_thread(_run, [sys.executable, *arguments], {**os.environ, **environment})


def _run(whole: Sequence[str], environment: Mapping[str, str]) -> Taken:
    began = perf_counter()
    with subprocess.Popen(whole, env=environment, stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, whole)
    return Taken(wall_s, usage.ru_utime + usage.ru_stime)
