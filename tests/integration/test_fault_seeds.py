"""Stories of faults drawn by seeds: nothing is lost without a recorded gap, nothing is decided twice, rows are true.

Each story kills, cuts off, fills, sets back and restores servers and processes that compete, between events. Only what
a story does is drawn by its seed; what the processes were doing at that moment is not, so a seed may need several runs.
"""

import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuledger.deciders.seals import decide as seals
from gpuledger.events.envelope import Undecoded, decode, parse
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.log_proof import prove_log
from gpuledger.tools.queries.backend import Backend
from support import deciders
from support import fault_story as story
from support.fault_agent import SOURCE
from support.fault_events import events
from support.fault_runners import projections
from support.fault_story import Step
from support.fault_world import Deed, TightNats, World, a_world
from support.ledgers import everything
from support.outbox import numbers_in
from support.projections import assert_true, prepare, table
from support.servers import database_name, delete_streams, fresh_database, short_directory
from support.waiting import eventually

SHORT = (5,)
"""In every run; the story of seed 3 has what it lacks: both together have late and lost packets, old copies of either
server, clocks, and full disks."""

LONG = tuple(seed for seed in range(1, 36) if seed not in SHORT)
"""Where CI runs, the long target tells the same stories every time, as properties take the same examples there."""

DEFAULT = 1_000
LAST_EVENTS = 60
"""Events after the faults, so that every source shows what it has lost before."""

LAST_FACTS = 5

LOG_LINES = 6
"""How much of its processes' logs a story that fails shows."""

GRACE_OVER_S = 7_200.0
REPLAY = "GPULEDGER_FAULT_SEED={} .venv/bin/pytest -q -s -m faults tests/integration/test_fault_seeds.py"


@pytest.fixture
def nats() -> Iterator[TightNats]:
    with short_directory() as directory, TightNats(directory / "nats") as server:
        yield server


async def play(world: World, step: Step, *, alone: bool = True) -> None:
    """One fault, when its moment has come; within another one nothing can settle."""
    if step.settles and alone:
        await world.follows()
    world.agent.record(step.facts)
    await world.publisher.advance(step.events)
    await deeds(world, step)[step.fault]()


def deeds(world: World, step: Step) -> dict[str, Deed]:
    """What each fault is."""

    async def meanwhile() -> None:
        if step.within is not None:
            await play(world, step.within, alone=False)

    return {
        story.KILL_NATS: lambda: world.kill(world.nats),
        story.KILL_POSTGRES: lambda: world.kill(world.postgres),
        story.KILL_RUNNERS: lambda: world.restart_runners(step.which),
        story.KILL_AGENT: world.restart_agent,
        story.HOLD_NATS: lambda: world.hold(world.nats_network, step.events, meanwhile),
        story.HOLD_POSTGRES: lambda: world.hold(world.postgres_network, step.events, meanwhile),
        story.CUT_NATS: lambda: world.cut(world.nats_network, step.events, meanwhile),
        story.CUT_POSTGRES: lambda: world.cut(world.postgres_network, step.events, meanwhile),
        story.COPY_NATS: lambda: world.copy(world.nats),
        story.COPY_POSTGRES: lambda: world.copy(world.postgres),
        story.RESTORE_NATS: world.restore_nats,
        story.RESTORE_POSTGRES: world.restore_postgres,
        story.CLOCKS: lambda: world.set_clocks(step.which, step.ahead_s),
        story.DISK_FULL: world.fill_disk,
        story.NO_SPACE: world.exhaust_disk,
        story.SPOOL_FULL: lambda: world.fill_spool(meanwhile),
    }


async def assert_nothing_lost_or_twice(world: World) -> None:
    messages = await everything(world.ledger)
    events = [parse(message.data) for message in messages]
    ids = {one.id for one in events}
    twice = _recorded_twice(events)
    assert not twice, f"an event or a decision is recorded twice: {twice}, {world.stops}"
    acknowledged = world.publisher.drawn[: world.publisher.acknowledged]
    missing = {one.id: decode(one.data) for one in acknowledged if b'"kind":""' not in one.data and one.id not in ids}
    assert set(missing) <= world.lost, "an acknowledged event is lost that no copy of the log lacks"

    gaps = numbers(world.url, "gap")
    unrecorded = [one for one in missing.values() if (one.source, one.epoch, one.number) not in gaps]
    assert not unrecorded, "an event is lost without a gap"
    agents = {gap for gap in gaps if gap[0] == SOURCE}
    assert world.log_was_restored or not gaps - agents, "a gap in a log that was never restored"
    assert world.log_was_restored or not agents or world.agent.lost_memory, "a gap though the agent's disk had it all"
    _assert_numbered(events, gaps)
    recorded = numbers_in(decode(message.data) for message in messages if parse(message.data).source == SOURCE)
    assert world.agent.kept <= set(recorded) or world.log_was_restored, "the agent has lost what it had on disk"


def _recorded_twice(events: list[Undecoded]) -> dict[str, list[tuple[int, str, int]]]:
    """Where each event stands that the log has more than once: position, epoch and number, by type and id."""
    places = defaultdict(list)
    for position, one in enumerate(events, 1):
        places[f"{one.type} {one.id}"].append((position, one.epoch, one.number))
    return {name: found for name, found in places.items() if len(found) > 1}


def numbers(url: str, name: str) -> set[tuple[str, str, int]]:
    """The numbers in the ranges of a table: source, epoch and number."""
    ranges = table(url, name, "source, epoch, first, last")
    return {(source, epoch, one) for source, epoch, first, last in ranges for one in range(first, last + 1)}


def _assert_numbered(events: list[Undecoded], gaps: set[tuple[str, str, int]]) -> None:
    """Every number of every source is in the log once, or in a gap."""
    recorded = defaultdict(list)
    for one in events:
        recorded[one.source, one.epoch].append(one.number)
    for (source, epoch), found in recorded.items():
        lost = [number for at, of, number in gaps if (at, of) == (source, epoch)]
        assert not set(found) & set(lost), (source, epoch, "recorded, and in a gap", sorted(set(found) & set(lost)))
        assert sorted(found + lost) == list(range(1, max(found + lost) + 1)), (source, epoch)


async def assert_verified(world: World) -> None:
    await assert_true(world.ledger, world.url, projections())
    proof = await prove_log(Backend(world.ledger, world.url, world.nats.url, None))
    if proof.broken is not None:
        events = [parse(message.data) for message in await everything(world.ledger)]
        recorded = [(place, one.epoch, one.data) for place, one in enumerate(events, 1) if ".sealed." in one.type]
        raise AssertionError(f"{proof.broken}: {recorded}, {world.stops}")


async def tell(nats: TightNats, postgres: PostgresServer, template: str, seed: int, folder: Path) -> None:
    """One story from its beginning to its end, in a copy of a database."""
    chance = random.Random(seed)
    steps = story.steps(chance)
    print(f"seed {seed}: {', '.join(map(str, steps))}", flush=True)
    delete_streams(nats.url)
    with fresh_database(postgres.url, template) as url:
        async with a_world(nats, postgres, url, events(chance, system_clock()), folder) as world:
            for step in steps:
                await play(world, step)
            await world.follows()
            await world.publisher.advance(LAST_EVENTS)
            world.agent.record(LAST_FACTS)
            world.agent.drain()
            await eventually(world.agent.is_drained)
            for one in world.runners:
                one.say(f"ahead {GRACE_OVER_S}")

            async def has_every_gap() -> bool:
                return numbers(url, "missing") <= numbers(url, "gap")

            await eventually(has_every_gap, interval_s=0.1)
            await world.follows()
            await assert_nothing_lost_or_twice(world)
            await assert_verified(world)
            print(f"  stops: {sorted({(stop.projection, stop.error) for stop in world.stops})}", flush=True)


@pytest.fixture(autouse=True)
def bounds_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """`projections` sets bounds for a process of its own; what else runs in this one keeps those there were."""
    monkeypatch.setattr(seals, "MESSAGES_PER_SEAL", seals.MESSAGES_PER_SEAL)
    monkeypatch.setattr(deciders, "AWAY_AT_MOST", deciders.AWAY_AT_MOST)
    monkeypatch.setattr(deciders, "AWAY_MAX", deciders.AWAY_MAX)


async def tell_all(seeds: Iterator[int], nats: TightNats, postgres: PostgresServer) -> None:
    with fresh_database(postgres.url) as prepared:
        template = database_name(prepare(prepared))
        for seed in seeds:
            await _tell_or_show(nats, postgres, template, seed)


async def _tell_or_show(nats: TightNats, postgres: PostgresServer, template: str, seed: int) -> None:
    """A story, or what its processes logged and how to tell it again."""
    with short_directory() as folder:
        try:
            await tell(nats, postgres, template, seed, folder)
        except BaseException as error:
            for log in sorted(folder.glob("*.log")):
                print(f"The end of {log.name}:", *log.read_text().splitlines()[-LOG_LINES:], sep="\n  ")
            replay = f"Tell it again: {REPLAY.format(seed)}"
            print(replay, flush=True)
            error.add_note(replay)
            raise


def fresh_seeds(count: int) -> Iterator[int]:
    """The seed that is asked for, or new ones."""
    if given := os.environ.get("GPULEDGER_FAULT_SEED"):
        return iter([int(given)])
    return (random.SystemRandom().randint(1, 10**6) for _ in range(count))


async def test_a_story_loses_nothing_and_decides_nothing_twice(nats: TightNats, fresh_postgres: PostgresServer) -> None:
    await tell_all(iter(SHORT), nats, fresh_postgres)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_thirty_four_stories_lose_nothing_and_decide_nothing_twice(
    nats: TightNats, fresh_postgres: PostgresServer
) -> None:
    seeds = iter(LONG) if os.environ.get("CI") else fresh_seeds(len(LONG))
    await tell_all(seeds, nats, fresh_postgres)


@pytest.mark.faults
@pytest.mark.timeout(24 * 3600)
async def test_many_stories_lose_nothing_and_decide_nothing_twice(
    nats: TightNats, fresh_postgres: PostgresServer
) -> None:
    count = int(os.environ.get("GPULEDGER_FAULT_SEEDS") or DEFAULT)
    await tell_all(fresh_seeds(count), nats, fresh_postgres)
