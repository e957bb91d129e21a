"""What a subject costs NATS beside what an event does, and how long it takes to find one of many names."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from statistics import median
from time import perf_counter

import psutil

from bench.report import Figure
from bench.servers import unsynced_nats
from gpuledger.events.envelope import parse
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.subjects import aggregate_filter
from gpuledger.events.workload import WorkloadEnded
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.subject_form import SubjectForm
from gpuledger.tools.importers.run import EVENTS_PER_PUBLISH
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections
from gpuledger.tools.queries.named_events import messages_about
from support.events import event, outgoing
from support.ledgers import new_ledger

AGGREGATE = WorkloadEnded.AGGREGATE
LOOK_UP_MS_MAX = 200.0


@dataclass(frozen=True)
class SubjectsSizes:
    """How many names there are with one event each, and how often one of them is looked up."""

    names: int = 300_000
    look_ups: int = 21


FULL = SubjectsSizes()
QUICK = SubjectsSizes(names=5_000, look_ups=3)


@dataclass(frozen=True)
class Filled:
    """Bytes of the server's memory for each name; milliseconds to find a name's events, and to scan all of its kind."""

    bytes_a_name: float
    look_up_ms: float
    scan_ms: float


async def subjects(database_url: str, sizes: SubjectsSizes) -> list[Figure]:
    """Bytes of memory for each name in both forms, and milliseconds of a look-up beside a scan."""
    named, shared = await _filled(sizes, database_url, shares=False), await _filled(sizes, database_url, shares=True)
    label = f"{sizes.names:,} names with one event each"
    look_up, scan = "looking up a name", "scan of its kind"
    return [
        Figure(
            f"memory of NATS for a subject, {label}",
            max(named.bytes_a_name - shared.bytes_a_name, 1.0),
            "bytes",
            "for an event and its id",
            shared.bytes_a_name,
            None,
        ),
        Figure(f"{look_up}, {label}", named.look_up_ms, "ms", scan, named.scan_ms, LOOK_UP_MS_MAX, False),
        Figure(f"{look_up}, {label}, shared", shared.look_up_ms, "ms", scan, shared.scan_ms, LOOK_UP_MS_MAX, False),
    ]


async def _filled(sizes: SubjectsSizes, database_url: str, *, shares: bool) -> Filled:
    with unsynced_nats() as server:
        async with new_ledger(server.url, name="bench") as ledger:
            if shares:
                rule = RuleEnforced(version=RULE_VERSIONS[Rule.SHARED_SUBJECTS])
                await ledger.publish(outgoing(event(rule, Rule.SHARED_SUBJECTS, source="/services/sources")))
            before = await _memory_bytes(server)
            await _fill(ledger, sizes.names)
            taken = max(await _memory_bytes(server) - before, sizes.names) / sizes.names
            backend = Backend(ledger, database_url, server.url, None)
            if shares:
                await bring_current(backend, named_projections(["index"]))
            sought = [_name(sizes.names * number // sizes.look_ups) for number in range(sizes.look_ups)]
            look_ups = [await _look_up_ms(backend, name) for name in sought]
            return Filled(taken, median(look_ups), await _scan_ms(ledger, sought[-1]))


async def _fill(ledger: JetStreamLedger, names: int) -> None:
    form, ended = SubjectForm(ledger), _ended(names)
    while chunk := list(islice(ended, EVENTS_PER_PUBLISH)):
        await ledger.publish_many(await form.of(chunk))


def _ended(names: int) -> Iterator[Outgoing]:
    for number in range(1, names + 1):
        yield outgoing(event(WorkloadEnded(), _name(number - 1), number=number))


def _name(number: int) -> str:
    return f"team-{number % 50}/train-{number:09}-5d8f7c9b44-x2x7q"


async def _look_up_ms(backend: Backend, name: str) -> float:
    began = perf_counter()
    found = [one async for messages in messages_about(backend, AGGREGATE, name) for one in messages]
    assert len(found) == 1, f"{name} has one event"
    return (perf_counter() - began) * 1e3


async def _scan_ms(ledger: JetStreamLedger, name: str) -> float:
    began, found = perf_counter(), 0
    async for messages in ledger.history(subject_filter=aggregate_filter(AGGREGATE)):
        found += sum(parse(one.data).subject == name for one in messages)
    assert found == 1, f"{name} has one event"
    return (perf_counter() - began) * 1e3


async def _memory_bytes(server: NatsServer) -> int:
    """Of the server after a start, when it holds what it needs of the stream, and no garbage and no cache of blocks."""
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)
    return int(psutil.Process(server.pid).memory_info().rss)
