"""The outbox with a real ledger and real disks: killed at random moments, the disk full, the ledger away."""

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpuledger.events.node import NodeAgentStarted
from gpuledger.ledger.api import Outgoing
from gpuledger.local.servers.nats import NatsServer
from support.ledgers import everything, jetstream_ledger
from support.outbox import numbers_in, recorded
from support.paths import ROOT
from support.processes import Program
from support.servers import short_directory
from support.waiting import eventually

ROUNDS = 6
FACTS = 150
TESTS = str(ROOT / "tests")
CHILD = (
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {TESTS!r}); from support.outbox_child import run; run()",
)


class Children:
    """Processes that record `count` facts each, from number `first` on, and print where each is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs: list[Program] = []

    async def start(self, url: str, first: int, count: int, *, at: Path | None = None, file_max: int = 0) -> Program:
        async with jetstream_ledger(url):  # An agent never makes the ledger.
            pass
        arguments = (str(at or self._folder), url, str(first), str(count), str(file_max))
        program = Program((*CHILD, *arguments), self._folder.parent / "log")
        self._programs.append(program)
        await program.start()
        return program

    async def kill(self) -> None:
        for program in self._programs:
            await program.kill()


def kept(folder: Path) -> list[int]:
    """The numbers of the facts that were logged as on disk."""
    lines = (folder.parent / "log").read_text().splitlines()
    return [int(line.removeprefix("kept ")) for line in lines if line.startswith("kept ")]


def logged(folder: Path) -> list[int]:
    lines = (folder.parent / "log").read_text().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith(("kept ", "held "))]


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory / "state"


@pytest.fixture
async def children(folder: Path) -> AsyncIterator[Children]:
    children = Children(folder)
    yield children
    await children.kill()


async def log_of(url: str) -> list[Outgoing]:
    async with jetstream_ledger(url) as ledger:
        return [Outgoing(message.subject, "", message.data) for message in await everything(ledger)]


async def ended(program: Program) -> None:
    async def is_over() -> bool:
        return not program.running

    await eventually(is_over)


@pytest.mark.long
async def test_killed_at_random_moments_it_loses_nothing_that_it_had_on_disk(
    clean_nats_url: str, folder: Path, children: Children
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for number in range(ROUNDS):
        program = await children.start(clean_nats_url, number * FACTS, FACTS)
        goal = len(logged(folder)) + moments.randrange(1, FACTS // 2)

        async def has_logged(goal: int = goal) -> bool:
            return len(logged(folder)) >= goal

        await eventually(has_logged, interval_s=0.001)
        await program.kill()
    last = await children.start(clean_nats_url, ROUNDS * FACTS, 1)
    await ended(last)
    found = recorded(await log_of(clean_nats_url))
    numbers = numbers_in(found.events)
    assert numbers == sorted(set(numbers))
    assert set(kept(folder)) <= set(numbers), last.complaint()
    assert {epoch: holes for epoch, holes in found.missing.items() if holes} == {}
    starts = [event.data.clean for event in found.events if isinstance(event.data, NodeAgentStarted)]
    assert starts == [False] * (ROUNDS + 1)
    assert len({event.epoch for event in found.events}) == 1


async def test_a_ledger_that_is_killed_gets_all_of_it_afterwards(
    fresh_nats: NatsServer, folder: Path, children: Children
) -> None:
    program = await children.start(fresh_nats.url, 0, 3 * FACTS)

    async def has_begun() -> bool:
        return len(logged(folder)) > 20

    await eventually(has_begun, interval_s=0.005)
    fresh_nats.kill()

    async def has_logged() -> bool:
        return len(logged(folder)) == 3 * FACTS

    await eventually(has_logged)
    await asyncio.to_thread(fresh_nats.start)
    await ended(program)
    found = recorded(await log_of(fresh_nats.url))
    assert numbers_in(found.events) == list(range(3 * FACTS))


async def test_a_file_that_may_grow_no_further_is_a_disk_that_is_full(
    clean_nats_url: str, folder: Path, children: Children
) -> None:
    program = await children.start(clean_nats_url, 0, FACTS, file_max=100_000)
    await ended(program)
    found = recorded(await log_of(clean_nats_url))
    assert "held " in (folder.parent / "log").read_text(), "the bound was met"
    assert numbers_in(found.events) == list(range(FACTS))
    starts = [event.data.durable for event in found.events if isinstance(event.data, NodeAgentStarted)]
    assert starts[:2] == [True, False]


async def test_a_file_system_that_is_full_is_reported(clean_nats_url: str, folder: Path, children: Children) -> None:
    mounted = folder.parent / "full"
    mounted.mkdir()
    mount = await asyncio.to_thread(
        subprocess.run, ("mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", mounted), check=False, capture_output=True
    )
    if mount.returncode:
        pytest.skip(f"no file system can be mounted here: {mount.stderr.decode().strip()}")
    try:
        program = await children.start(clean_nats_url, 0, FACTS, at=mounted)
        await ended(program)
        found = recorded(await log_of(clean_nats_url))
    finally:
        await asyncio.to_thread(subprocess.run, ("umount", mounted), check=True)
    assert "held " in (folder.parent / "log").read_text(), "it was full"
    assert numbers_in(found.events) == list(range(FACTS))
