"""What the process of one service takes while nothing happens, as the chart's pod runs it: `gpuledger up --only NAME`.

The service `rollout` stands beside a projection that decides nothing, which shows what any process of ours costs.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import psutil

from bench.processes import CLI, process
from bench.report import Figure
from support import servers
from support.ledgers import make_ledger

SERVICE: Final = "rollout"
PEER: Final = "devices"
RSS_MIB: Final = 128.0
CPU_PERCENT: Final = 10.0
"""100m of a core."""

READY: Final = b"/healthz"
START_S: Final = 60.0


class ServiceSizes(NamedTuple):
    """For how long a process is watched at rest, and how long it may take before to become calm."""

    rest_s: float = 30.0
    settle_s: float = 5.0


FULL: Final = ServiceSizes()
QUICK: Final = ServiceSizes(3.0, 0.0)


class Resting(NamedTuple):
    """A process at rest: memory in MiB, and processor time in percent of a core."""

    rss_mib: float
    cpu_percent: float


async def service_process(database_url: str, sizes: ServiceSizes = FULL) -> list[Figure]:
    """Memory and processor time of `rollout` at rest."""
    with servers.nats_server() as nats:
        await make_ledger(nats.url)
        with _environment(NATS_URL=nats.url, DATABASE_URL=database_url):
            found, peer = [await _at_rest(name, sizes) for name in (SERVICE, PEER)]
    name, beside = f"`up --only {SERVICE}` at rest", f"`up --only {PEER}`"
    return [
        Figure(f"{name}, RSS", found.rss_mib, "MiB", beside, peer.rss_mib, RSS_MIB, is_ratio=False),
        Figure(f"{name}, CPU", found.cpu_percent, "%", beside, peer.cpu_percent, CPU_PERCENT, is_ratio=False),
    ]


async def _at_rest(service: str, sizes: ServiceSizes) -> Resting:
    arguments = ("up", "--no-kube", "--only", service, "--listen", "127.0.0.1:0")
    with servers.short_directory() as folder:
        async with process("-c", CLI, *arguments, "--data-dir", str(folder), silent=True) as child:
            assert child.stdout is not None
            async with asyncio.timeout(START_S):
                while READY not in (line := await child.stdout.readline()):
                    assert line, f"{arguments} does not start"
            await asyncio.sleep(sizes.settle_s)
            running = psutil.Process(child.pid)
            began = running.cpu_times()
            await asyncio.sleep(sizes.rest_s)
            ended = running.cpu_times()
            spent_s = ended.user + ended.system - began.user - began.system
            return Resting(running.memory_info().rss / 2**20, spent_s / sizes.rest_s * 100)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """These variables for the processes that start in the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
