"""Programs that tests start: their output goes to a log, and they are gone when the test is."""

import asyncio
from pathlib import Path

STOP_TIMEOUT_S = 10.0
LOG_TAIL_CHARS = 4_000


class Program:
    """One program, which can be started again after it was ended."""

    def __init__(self, command: tuple[str, ...], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Run it; its output is added to the log."""
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(*self._command, stdout=output, stderr=output)

    async def terminate(self) -> None:
        """End it in its orderly way, by force where that takes too long; nothing where it does not run."""
        if self._process is None or not self.running:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End it at once, as a crash would; nothing where it does not run."""
        if self._process is not None and self.running:
            self._process.kill()
            await self._process.wait()

    def complaint(self) -> str:
        """What it was, and the end of what it said."""
        return (
            f"{self._command[0]} does not serve. Its log {self._log} ends:\n{self._log.read_text()[-LOG_TAIL_CHARS:]}"
        )
