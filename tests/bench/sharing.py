"""What an event costs a process, step by step, and what would be left of it if processes shared a projection.

Processor time of one process, in microseconds for each event of the log. Every process reads, checks and numbers the
whole log, and folds and writes its projections. A share takes the events of some origins, by the hash that also
gives a partition: it may choose them behind the check, when all has been paid but the fold, or by their subjects.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from time import process_time
from typing import NamedTuple

from bench.all_projections import publish
from bench.report import Figure
from bench.rounds import Measure, medians
from bench.servers import unsynced_nats
from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.events.position import ORIGIN
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.ledger.partitions import partition_of
from gpuledger.projection.checker import Checked, Checker
from gpuledger.projection.checkpoint import Checkpoint
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.log_numbers import LogNumbers
from gpuledger.projection.store import Decider, ProjectionStore
from gpuledger.readmodels.projections import AllocationsProjection, read_models
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.tools.queries.backend import all_projections

BATCH = 4_096
"""So many messages of a backlog does a process hand on at once."""

ALL = "all projections"
COMMON = ("reading", "checking", "numbering")
MICROSECONDS = 1_000_000


class SharingSizes(NamedTuple):
    """How many agents record how many events, and into how many shares a projection is split."""

    agents: int = 12_500
    events: int = 50_000
    shares: tuple[int, ...] = (2, 4)


FULL = SharingSizes()
QUICK = SharingSizes(200, 2_000, (2,))

Batches = Sequence[Sequence[Message]]


class Share(NamedTuple):
    """The first of some shares of a projection, and whether it chooses its events before it parses any."""

    of: int = 1
    is_early: bool = False

    def has(self, message: Message) -> bool:
        """Whether the event is of this share."""
        return partition_of(message.subject, self.of) == 0


WHOLE = Share()


async def sharing(database_url: str, sizes: SharingSizes = FULL, rounds: int = 3) -> list[Figure]:
    """Processes of one projection or several beside one of all, and shares of the allocations beside the whole."""
    with unsynced_nats() as server:
        async with (
            connect_ledger(server.url, name="bench", puts_in_order=True) as ledger,
            connect(database_url, application_name="bench") as connection,
        ):
            await publish(ledger, sizes.agents, sizes.events)
            batches = await _batches(ledger)
            with seldom_collected():
                costs = await medians(_measures(ledger, connection, batches, sizes.shares), rounds)
    return _figures({name: cost * MICROSECONDS / sizes.events for name, cost in costs.items()}, sizes.shares)


def _measures(
    ledger: Ledger, connection: AsyncConnection, batches: Batches, shares: Sequence[int]
) -> dict[str, Measure]:
    measures: dict[str, Measure] = {
        "reading": lambda _: _read(ledger),
        "checking": lambda _: _check(batches),
        "numbering": lambda _: _number(batches),
    }
    for name, projections in _groups().items():
        measures[name] = partial(_fold, ledger, connection, projections, batches)
    for share in [WHOLE, *_shares(shares)]:
        measures[_name(share)] = partial(_take, ledger, connection, share, batches)
    return measures


def _groups() -> dict[str, list[Projection]]:
    """What one process folds: all projections, the read models, the deciders, or one of them."""
    everything, models = all_projections(), read_models()
    deciders = everything[len(models) :]
    return {ALL: everything, "the read models": models, "the deciders": deciders} | {
        one.name: [one] for one in everything
    }


def _shares(shares: Sequence[int]) -> list[Share]:
    return [Share(of, is_early) for of in shares for is_early in (False, True)]


def _name(share: Share) -> str:
    if share == WHOLE:
        return "allocations alone"
    return f"a share of {share.of} of allocations, {'by its subjects' if share.is_early else 'behind the check'}"


def _figures(costs: dict[str, float], shares: Sequence[int]) -> list[Figure]:
    common = sum(costs[name] for name in COMMON)
    whole, alone = common + costs[ALL], costs["reading"] + costs[_name(WHOLE)]
    figures = [Figure(f"an event, {name}", costs[name], "us", ALL, whole, None) for name in COMMON]
    figures += [
        Figure(f"an event, a process of {name}", common + costs[name], "us", ALL, whole, None) for name in _groups()
    ]
    return figures + [
        Figure(f"an event, {_name(share)}", costs["reading"] + costs[_name(share)], "us", _name(WHOLE), alone, None)
        for share in [WHOLE, *_shares(shares)]
    ]


async def _batches(ledger: Ledger) -> Batches:
    messages = [message async for some in ledger.history() for message in some]
    return [messages[start : start + BATCH] for start in range(0, len(messages), BATCH)]


async def _read(ledger: Ledger) -> float:
    began = process_time()
    async for _ in ledger.history():
        pass
    return process_time() - began


async def _check(batches: Batches) -> float:
    return _checked(batches)[1]


def _checked(batches: Batches) -> tuple[list[list[Checked]], float]:
    """The events, each checked, and the seconds that it took."""
    checker, began = Checker(), process_time()
    return [list(map(checker.check, batch)) for batch in batches], process_time() - began


async def _number(batches: Batches) -> float:
    checked, numbers = _checked(batches)[0], LogNumbers()
    began = process_time()
    for batch in checked:
        _count(batch, numbers)
    return process_time() - began


def _count(batch: Sequence[Checked], numbers: LogNumbers) -> None:
    for one in batch:
        one.counts(numbers)


async def _fold(
    ledger: Ledger, connection: AsyncConnection, projections: Sequence[Projection], batches: Batches, _round: int
) -> float:
    """Seconds to fold and write what has been checked and numbered; each payload is decoded by who needs it first."""
    checked, numbers = _checked(batches)[0], LogNumbers()
    for batch in checked:
        _count(batch, numbers)
    writers = [await _Writer.begin(ledger, connection, projection, numbers) for projection in projections]
    began = process_time()
    for batch in checked:
        for writer in writers:
            await writer.take(batch)
    return process_time() - began


async def _take(ledger: Ledger, connection: AsyncConnection, share: Share, batches: Batches, _round: int) -> float:
    """Seconds of one share of the allocations for all but reading."""
    checker, numbers = Checker(), LogNumbers()
    writer = await _Writer.begin(ledger, connection, AllocationsProjection(), numbers)
    began = process_time()
    for batch in batches:
        if share.is_early:
            checked = []
            for message in batch:
                if share.has(message):
                    checked.append(one := checker.check(message))
                    one.counts(numbers)
                else:
                    numbers.is_new(message, None)
        else:
            checked = list(map(checker.check, batch))
            _count(checked, numbers)
            if share.of > 1:
                checked = [one for one in checked if share.has(one.message)]
        await writer.take(checked)
        await asyncio.sleep(0)
    return process_time() - began


class _Writer:
    """A projection's fold and its rows, which are empty at first."""

    def __init__(self, store: ProjectionStore, fold: Fold, checkpoint: Checkpoint) -> None:
        self._store = store
        self._fold = fold
        self._checkpoint = checkpoint

    @classmethod
    async def begin(
        cls, ledger: Ledger, connection: AsyncConnection, projection: Projection, numbers: LogNumbers
    ) -> "_Writer":
        store = ProjectionStore(connection, projection)
        await store.empty()
        await connection.execute("DELETE FROM gpuledger.projection WHERE name = %s", (projection.name,))
        if projection.decides:
            await store.create_decider(Decider("bench", 1, ORIGIN))
        fold = Fold(projection, ledger.generations, numbers=numbers)
        fold.begin(ledger.identity)
        return cls(store, fold, await store.create(ledger.identity, "bench"))

    async def take(self, batch: Sequence[Checked]) -> None:
        await self._store.fold(self._fold, batch)
        self._checkpoint = await self._store.flush(self._fold, self._checkpoint)
