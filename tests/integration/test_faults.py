"""Kill -9 of projector, nats-server and PostgreSQL at moments drawn by a seed: nothing is lost, nothing counts twice.

The moments are numbers of events published and of flushes seen, never times. `GPULEDGER_FAULT_SEED` repeats a run.
"""

import asyncio
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import NamedTuple

import pytest

from gpuledger.events.device import DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.envelope import parse
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.payload import Payload
from gpuledger.events.position import events_up_to, is_at_or_after
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.tools.queries.backend import all_projections
from support.events import AGENT, IMPORT, event, outgoing
from support.ledgers import DEADLINE_S, everything, jetstream_ledger
from support.paths import ROOT
from support.projections import assert_true, checkpoint, prepare, table
from support.waiting import eventually

LONG_ROUNDS = 30
CHUNK = 25
AHEAD_MAX = 200
"""How many events the publisher goes on behind the moment of a kill."""

BAD_EVERY = 40
PROJECTOR, NATS, POSTGRES = "projector", "nats-server", "PostgreSQL"
UNFIT = DeviceFailed(kind="?")
SOURCES = (IMPORT, AGENT, "/nodes/n2/agent")


class Moment(NamedTuple):
    """When to kill whom: so many events or flushes after the last time, but not before a flush was seen."""

    victim: str
    events: int
    flushes: int


def moments(chance: random.Random, rounds: int) -> list[Moment]:
    """As many for each victim, in any order."""
    victims = [(PROJECTOR, NATS, POSTGRES)[number % 3] for number in range(rounds)]
    chance.shuffle(victims)
    return [Moment(victim, chance.randint(1, 600), chance.randint(1, 60)) for victim in victims]


def story(chance: random.Random) -> Iterator[Outgoing]:
    """Events without end, the same for the same seed; now and then one that will be turned down."""
    numbers: Counter[str] = Counter()
    for index, _ in enumerate(iter(int, 1), 1):
        source = chance.choice(SOURCES)
        numbers[source] += 1
        data, subject = (UNFIT, "d1") if index % BAD_EVERY == 0 else _something(chance)
        late = chance.choice([0, 0, 0, -50])
        recorded = event(data, subject, number=numbers[source], at=index / 10 + late, source=source)
        ready = outgoing(recorded)
        yield ready._replace(data=ready.data.replace(b'"kind":"?"', b'"kind":""'))


def _something(chance: random.Random) -> tuple[Payload, str]:
    device, slot = f"d{chance.randint(1, 30)}", f"s{chance.randint(1, 30)}"
    node, workload = f"n{chance.randint(1, 4)}", f"w{chance.randint(1, 40)}"
    return chance.choice(
        [
            (DeviceInserted(slot=slot), device),
            (DeviceInserted(slot=slot, serial=device), device),
            (DeviceRemoved(slot=slot, retired=chance.random() < 0.1), device),
            (DeviceFailed(kind="DBE", slot=slot), device),
            (SlotDeclared(node=node), slot),
            (NodeRegistered(gpu_count=chance.randint(1, 8)), node),
            (NodeDecommissioned(), node),
            (WorkloadSubmitted(gpu_milli=chance.randint(0, 4000)), workload),
            (WorkloadScheduled(gpu_milli=chance.randint(0, 4000), node=node), workload),
            (WorkloadEnded(), workload),
        ]
    )


class Projector:
    """The process that projects; counts its flushes across its lives."""

    def __init__(self, nats_url: str, database_url: str) -> None:
        self.flushes = 0
        self._arguments = (nats_url, database_url)
        self._process: asyncio.subprocess.Process
        self._listener: asyncio.Task[None]

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "support.projector", *self._arguments),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT / "tests",
        )
        self._listener = asyncio.create_task(self._listen())

    async def kill(self) -> None:
        assert self._process.returncode is None, "the projector ended unexpectedly; see its stderr"
        self._process.kill()
        await self._process.wait()
        await self._listener

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for _ in self._process.stdout:
            self.flushes += 1


class Publisher:
    """Publishes the story as far as allowed, going on with the same events whatever happens, until it is stopped."""

    def __init__(self, ledger: JetStreamLedger, story: Iterator[Outgoing]) -> None:
        self.published: list[Outgoing] = []
        self.allowed = 0
        self.enough = asyncio.Event()
        self._ledger = ledger
        self._story = story

    async def run(self) -> None:
        while not self.enough.is_set():
            if len(self.published) >= self.allowed:
                await asyncio.sleep(0.001)
                continue
            chunk = list(islice(self._story, CHUNK))
            while not await self._publish(chunk):
                pass
            self.published += chunk

    async def _publish(self, chunk: list[Outgoing]) -> bool:
        try:
            await self._ledger.publish_many(chunk)
        except (PublishError, LedgerUnavailableError):
            return False
        return True


class Scene:
    """The three that get killed, and the publisher that goes on."""

    def __init__(self, nats: NatsServer, postgres: PostgresServer, projector: Projector, publisher: Publisher) -> None:
        self._servers = {NATS: nats, POSTGRES: postgres}
        self._projector = projector
        self._publisher = publisher

    async def play(self, moment: Moment) -> None:
        await self._wait_for(moment)
        print(f"kill {moment.victim}: {len(self._publisher.published)} events, {self._projector.flushes} flushes")
        if moment.victim == PROJECTOR:
            await self._projector.kill()
            await self._projector.start()
        else:
            self._servers[moment.victim].kill()
            self._servers[moment.victim].start()  # in this very thread, with which a server ends

    async def _wait_for(self, moment: Moment) -> None:
        events = len(self._publisher.published) + moment.events
        flushes = self._projector.flushes + moment.flushes
        self._publisher.allowed = events + AHEAD_MAX

        before = self._projector.flushes

        async def due() -> bool:
            seen = self._projector.flushes
            return seen > before and (len(self._publisher.published) >= events or seen >= flushes)

        await eventually(due, interval_s=0.001)


async def run(nats: NatsServer, postgres: PostgresServer, *, rounds: int) -> None:
    seed = int(os.environ.get("GPULEDGER_FAULT_SEED") or random.SystemRandom().randint(1, 10**6))
    print(f"GPULEDGER_FAULT_SEED={seed}")
    chance = random.Random(seed)
    url = prepare(postgres.url)
    async with jetstream_ledger(nats.url, publish_timeout_s=5.0) as ledger:
        publisher = Publisher(ledger, story(random.Random(seed)))
        projector = Projector(nats.url, url)
        async with _playing(projector, publisher):
            scene = Scene(nats, postgres, projector, publisher)
            for moment in moments(chance, rounds):
                await scene.play(moment)
            publisher.enough.set()
            await _settled(ledger, url, publisher)
        await assert_nothing_lost_or_twice(ledger, url, publisher.published)


@asynccontextmanager
async def _playing(projector: Projector, publisher: Publisher) -> AsyncIterator[None]:
    await projector.start()
    task = asyncio.create_task(publisher.run())
    try:
        yield
        async with asyncio.timeout(DEADLINE_S):
            await task
    finally:
        task.cancel()
        await projector.kill()


async def _settled(ledger: JetStreamLedger, url: str, publisher: Publisher) -> None:
    """Every checkpoint is at the head, which holds every event and every decision."""

    async def settled() -> bool:
        head = await ledger.head()
        found = [await checkpoint(url, projection.name) for projection in all_projections()]
        bad = len(publisher.published) // BAD_EVERY
        is_whole = events_up_to(head) >= len(publisher.published) + bad
        return is_whole and all(one and is_at_or_after(one.position, head) for one in found)

    await eventually(settled, interval_s=0.1)


async def assert_nothing_lost_or_twice(ledger: JetStreamLedger, url: str, published: list[Outgoing]) -> None:
    messages = await everything(ledger)
    events = [parse(message.data) for message in messages]
    by_source = defaultdict(list)
    for one in events:
        by_source[one.source].append(one)
    decisions, seals = (by_source.pop(f"/services/{service}", []) for service in ("sources", "seals"))
    numbers = {source: [one.number for one in recorded] for source, recorded in by_source.items()}
    assert numbers == {source: list(range(1, len(recorded) + 1)) for source, recorded in numbers.items()}
    assert [one.id for one in events if one.source in by_source] == [message.id for message in published]

    turned_down = [message.sequence for message in messages if b'"kind":""' in message.data]
    assert [one.data["sequence"] for one in decisions] == turned_down
    for decided in (decisions, seals):
        assert len({one.id for one in decided}) == len(decided)
        in_epochs = Counter(one.epoch for one in decided)
        assert Counter((one.epoch, one.number) for one in decided) == Counter(
            (epoch, number) for epoch, count in in_epochs.items() for number in range(1, count + 1)
        )

    await assert_true(ledger, url, all_projections())
    rows = Counter[str]()
    for source, count, duplicates, missing in table(url, "source", "source, events, duplicates, missing"):
        rows[source] += count
        assert (duplicates, missing) == (0, 0)
    assert rows == Counter(one.source for one in events)
    assert not table(url, "gap")


async def test_three_kills_lose_nothing_and_count_nothing_twice(
    fresh_nats: NatsServer, fresh_postgres: PostgresServer
) -> None:
    await run(fresh_nats, fresh_postgres, rounds=3)


@pytest.mark.faults
@pytest.mark.timeout(3600)
async def test_many_kills_lose_nothing_and_count_nothing_twice(
    fresh_nats: NatsServer, fresh_postgres: PostgresServer
) -> None:
    await run(fresh_nats, fresh_postgres, rounds=int(os.environ.get("GPULEDGER_FAULT_ROUNDS") or LONG_ROUNDS))
