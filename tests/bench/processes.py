"""Programs of their own beside the one that measures, and requests to them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import quantiles

AT_ONCE = 16
CLI = "from gpuledger.cli.main import main; main()"


@asynccontextmanager
async def process(*arguments: str, silent: bool = False) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python of its own, killed when the block ends; a silent one shows nobody what it says on stderr."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL if silent else None,
    )
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()


@asynccontextmanager
async def api_server(directory: Path) -> AsyncIterator[Path]:
    """An embedded API server; yields its kubeconfig."""
    kubeconfig = directory / "kubeconfig"
    arguments = ("kube-api", "--listen", "127.0.0.1:0", "--kubeconfig", str(kubeconfig))
    async with process("-c", CLI, *arguments):
        async with asyncio.timeout(60):
            while not kubeconfig.exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
        yield kubeconfig


async def at_once(requests: Iterable[Awaitable[object]]) -> None:
    """Carry out requests, so many at once."""
    left = iter(requests)

    async def work() -> None:
        for request in left:
            await request

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def percentile_ms(times_s: list[float], percent: int) -> float:
    """A percentile of seconds, in milliseconds."""
    return quantiles(times_s, n=100, method="inclusive")[percent - 1] * 1000
