"""etcd for tests of a real API server, spoken to through its JSON gateway.

An API server's resourceVersions are etcd's revisions. To compact etcd is to forget what was before one.
"""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from support.kube_server import HOST
from support.processes import Program

START_TIMEOUT_S = 30.0
POLL_S = 0.05


class Etcd:
    """An etcd of one member, in a directory of its own."""

    def __init__(self, program: Path, directory: Path, port: int) -> None:
        self.url = f"http://{HOST}:{port}"
        self._program = Program(
            (
                *(str(program), "--data-dir", str(directory / "etcd"), "--unsafe-no-fsync"),
                *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
                *("--listen-peer-urls", f"http://{HOST}:0"),
            ),
            directory / "etcd.log",
        )

    async def start(self) -> None:
        """Run it until it answers, with what it has on disk."""
        if self._program.running:
            return
        await self._program.start()
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while self._program.running and not await self._answers():  # noqa: ASYNC110 - another process gets ready
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(self._program.complaint()) from None
        assert self._program.running, self._program.complaint()

    async def stop(self) -> None:
        """End it."""
        await self._program.terminate()

    async def compact(self) -> None:
        """Forget every revision before the present one."""
        status = await self._ask("maintenance/status", {})
        await self._ask("kv/compaction", {"revision": status["header"]["revision"], "physical": True})

    async def _answers(self) -> bool:
        try:
            await self._ask("maintenance/status", {})
        except aiohttp.ClientError:
            return False
        return True

    async def _ask(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        async with aiohttp.ClientSession() as session, session.post(f"{self.url}/v3/{what}", json=body) as answer:
            answer.raise_for_status()
            document: dict[str, Any] = await answer.json(content_type=None)
            return document
