"""A reader at a shell: types the commands of a page one after the other, in one folder, and looks at what they show.

What ends by itself is repeated until it shows what the page promises; a watch is interrupted once it has shown that;
what serves goes on until the reader leaves. Nothing here waits for a time to pass.
"""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from support.doc_pages import Command, simple
from support.doc_stories import Expected, Story
from support.up import DEADLINE_S, SERVERS

INTERVAL_S: Final = 0.5
COMMAND_S: Final = 2 * DEADLINE_S
PROMISED_S: Final = 3 * DEADLINE_S
"""How long a command is repeated: a node's preparation takes minutes on a busy machine."""

READY: Final = b"/healthz"
_TAKES_ALL: Final = "set -a; . ./.exported; "
_KEEPS_ALL: Final = "\n__code=$?; export -p > ./.exported; exit $__code"
INTERRUPTED: Final = frozenset({1, 130, -signal.SIGINT})
"""How a watch ends by Ctrl-C: 130 is ours, the others are those of versions of kubectl."""


class Ended(NamedTuple):
    """How a command ended, and what it showed."""

    code: int
    shown: str


class Reader:
    """Types commands in a folder. `replacing` has what stands for something of the reader's own."""

    def __init__(self, folder: Path, replacing: Mapping[str, str], variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._replacing = replacing
        kept = {name: value for name, value in os.environ.items() if name not in SERVERS}
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environ = {**kept, "PATH": path, "HOME": str(folder), "NO_COLOR": "1", "COLUMNS": "200", **variables}
        self._serving: list[Process] = []
        (folder / ".exported").write_text("")

    @asynccontextmanager
    async def reading(self) -> AsyncIterator["Reader"]:
        """Until the block ends, as does what serves: the last first."""
        try:
            yield self
            while self._serving:
                await _end(self._serving.pop())
        finally:
            for process in self._serving:
                await _kill(process)

    async def tell(self, story: Story, commands: Sequence[Command]) -> None:
        """Type the commands of a story; each does what the page promises."""
        for command in commands:
            await self.follow(command, story.outcome(command))

    async def follow(self, command: Command, expected: Expected) -> None:
        """Type a command and wait for what it is to do."""
        text, words = self._mine(command.text), simple(command.text)[-1]
        if words[:2] == ["gpuledger", "up"] or words[:3] == ["gpuledger", "agent", "run"]:
            await self._serve(text, expected, command)
        elif expected.until:
            await self._becomes(self._mine(expected.until), expected, command)
        elif "-w" in words:
            await self._watch(text, expected, command)
        else:
            ended = await self._becomes(text, expected, command)
            assert same_columns(command.output, ended.shown), f"{command.place} shows {command.output}, not {ended}"

    async def type(self, text: str) -> Ended:
        """One command, to its end; what it exports is there for the next."""
        process = await self._start(f"{_TAKES_ALL}{text}{_KEEPS_ALL}")
        try:
            async with asyncio.timeout(COMMAND_S):
                shown, _ = await process.communicate()
        except TimeoutError:
            raise AssertionError(f"{text!r} does not end") from None
        finally:
            await _kill(process)
        assert process.returncode is not None
        return Ended(process.returncode, shown.decode())

    async def _becomes(self, text: str, expected: Expected, command: Command) -> Ended:
        ended = None
        try:
            async with asyncio.timeout(PROMISED_S):
                while True:
                    ended = await self.type(text)
                    if ended.code == expected.code and re.search(expected.shows, ended.shown):
                        return ended
                    await asyncio.sleep(INTERVAL_S)
        except TimeoutError:
            raise AssertionError(f"{command.place}: {text!r} did not come to {expected}, but to {ended}") from None

    async def _serve(self, text: str, expected: Expected, command: Command) -> None:
        process = await self._start(f"{_TAKES_ALL}{text}", errors=self._folder / ".errors")
        self._serving.append(process)
        if expected.until:
            await self._becomes(self._mine(expected.until), expected, command)
            return
        printed = await _shown_until(process, READY)
        assert READY in printed, f"{text!r}: {printed!r}, {(self._folder / '.errors').read_text()}"

    async def _watch(self, text: str, expected: Expected, command: Command) -> None:
        assert expected.shows, f"{command.place}: say in its story what this watch is to show"
        process = await self._start(f"{_TAKES_ALL}{text}")
        try:
            shown = await _shown_until(process, expected.shows.encode())
            assert re.search(expected.shows.encode(), shown), f"{command.place}: {shown!r}"
        finally:
            _signal(process, signal.SIGINT)
            async with asyncio.timeout(DEADLINE_S):
                await process.communicate()
        assert process.returncode in INTERRUPTED, process.returncode

    async def _start(self, script: str, errors: Path | None = None) -> Process:
        with (errors or Path(os.devnull)).open("w") as file:
            return await asyncio.create_subprocess_exec(
                *("bash", "-c", script),
                cwd=self._folder,
                env=self._environ,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=file if errors else STDOUT,
                start_new_session=True,
            )

    def _mine(self, text: str) -> str:
        for theirs, mine in self._replacing.items():
            text = text.replace(theirs, mine)
        return text


def same_columns(shown: str, output: str) -> bool:
    """Whether an output has the columns that the page shows, up to where the page leaves the rest out."""
    if not shown:
        return True
    columns = shown.splitlines()[0].partition("...")[0].split()
    return output.splitlines()[0].split()[: len(columns)] == columns


async def _shown_until(process: Process, pattern: bytes) -> bytes:
    """What it has shown when the pattern occurs, or when it ends."""
    assert process.stdout is not None
    shown = b""
    async with asyncio.timeout(DEADLINE_S):
        while not re.search(pattern, shown) and (line := await process.stdout.readline()):
            shown += line
    return shown


async def _end(process: Process) -> None:
    _signal(process, signal.SIGINT)
    async with asyncio.timeout(DEADLINE_S):
        await process.communicate()
    assert process.returncode == 0, process.returncode


async def _kill(process: Process) -> None:
    if process.returncode is None:
        _signal(process, signal.SIGKILL)
        await process.communicate()


def _signal(process: Process, number: signal.Signals) -> None:
    if process.returncode is None:
        os.killpg(process.pid, number)
