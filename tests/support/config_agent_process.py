"""The agent of machine configuration as a process of its own, which tests start, stop and kill."""

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
from support.config_agent import FakeMachine

_METRICS: Final = re.compile(r"metrics (http://\S+)/metrics").search
SYSTEMCTL: Final = """#!/bin/sh
echo "$*" >> {root}/calls
case "$*" in *show*)
  for last; do :; done
  echo "Id=$last"; echo LoadState=loaded; echo ActiveState=inactive; echo UnitFileState=disabled; echo Type=simple
esac
"""


class ConfigAgentProcess:
    """An agent of `w1` on a machine in a folder, whose systemctl writes down its calls."""

    def __init__(self, root: Path, kubeconfig: Path) -> None:
        self.machine = FakeMachine(root)
        self.calls = root / "calls"
        self.facts = FactsFolder(root / "reports")
        program = root / "systemctl"
        program.write_text(SYSTEMCTL.format(root=root))
        program.chmod(0o755)
        self.environ = {
            **os.environ,
            "NODE_NAME": "w1",
            "KUBECONFIG": str(kubeconfig),
            "GPULEDGER_HOST_ROOT": str(self.machine.root),
            "GPULEDGER_CONFIG_STATE_DIR": str(self.machine.state),
            "GPULEDGER_CONFIG_FACTS_DIR": str(root / "reports"),
            "GPULEDGER_SYSTEMCTL": str(program),
        }
        self.url = ""
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Start it; returns what it prints first."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gpuledger.configagent", env=self.environ, stderr=asyncio.subprocess.PIPE
        )
        assert self.process.stderr is not None
        first = (await self.process.stderr.readline()).decode()
        found = _METRICS(first)
        self.url = found[1] if found else ""
        return first

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        await self.process.communicate()
        return self.process.returncode or 0

    async def read(self, path: str) -> str:
        """What it serves there."""
        async with httpx.AsyncClient() as client:
            return (await client.get(f"{self.url}{path}")).text


@asynccontextmanager
async def a_config_agent(root: Path, kubeconfig: Path) -> AsyncIterator[ConfigAgentProcess]:
    agent = ConfigAgentProcess(root, kubeconfig)
    await agent.start()
    try:
        yield agent
    finally:
        await agent.end(signal.SIGKILL)
