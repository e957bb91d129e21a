"""A runtime proxy as a process of its own, which tests start, kill and restart."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx

from gpuledger.runtimefacts.folder import FactsFolder

_METRICS: Final = re.compile(r"metrics (http://\S+)/metrics").search


class ProxyProcess:
    """A proxy before `runtime.sock` of its folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.listen = root / "proxy.sock"
        self.facts = FactsFolder(root / "dir")
        self.url = ""
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Start it; returns what it prints first."""
        environ = {
            **os.environ,
            "GPULEDGER_RUNTIME_PROXY_LISTEN": f"unix://{self.listen}",
            "GPULEDGER_RUNTIME_ENDPOINT": f"unix://{self.root / 'runtime.sock'}",
            "GPULEDGER_RUNTIME_PROXY_DIR": str(self.root / "dir"),
        }
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gpuledger.runtimeproxy", env=environ, stderr=asyncio.subprocess.PIPE
        )
        assert self._process.stderr is not None
        first = (await self._process.stderr.readline()).decode()
        found = _METRICS(first)
        self.url = found[1] if found else ""
        return first

    async def end(self, number: int) -> int:
        """Send a signal, and return the exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        await self._process.communicate()
        return self._process.returncode or 0

    async def code(self) -> int:
        """The exit code of one that ends by itself."""
        assert self._process is not None
        return await self._process.wait()

    async def metrics(self) -> str:
        """What it measures."""
        async with httpx.AsyncClient() as client:
            return (await client.get(f"{self.url}/metrics")).text


@asynccontextmanager
async def a_proxy(root: Path) -> AsyncIterator[ProxyProcess]:
    proxy = ProxyProcess(root)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.end(signal.SIGKILL)
