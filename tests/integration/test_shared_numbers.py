"""The numbers seen that all projections share: stored seldom, brought forward, and never believed of another log."""

import asyncio
from collections.abc import Iterable

import psycopg
import pytest

from gpuledger.events.device import DeviceFailed
from gpuledger.events.position import ORIGIN, Offset
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection import log_numbers, shared_numbers
from gpuledger.projection.errors import VersionError
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.projection.shared_numbers import SharedNumbers
from gpuledger.projection.verify import NUMBERS, verify
from gpuledger.readmodels.projections import DevicesProjection, NodesProjection
from gpuledger.tools.queries.backend import all_projections
from support.events import event, outgoing
from support.projections import QUICK, execute, stop

STORED = "SELECT position, complete_from FROM gpuledger.numbers_seen_position"


@pytest.fixture
def memory() -> MemoryLedger:
    """A log in memory, which can hold another event at a position."""
    return MemoryLedger()


async def record(ledger: MemoryLedger, numbers: Iterable[int], *, kind: str = "DBE") -> Offset:
    """Record events by their numbers, some of which may come again; the head then."""
    for number in numbers:
        one = outgoing(event(DeviceFailed(kind=kind), "d1", number=number, event_id=f"f{number}"))
        await ledger.publish(one._replace(id=f"{kind} at {await ledger.head()}"))
    return await ledger.head()


async def caught_up(ledger: MemoryLedger, url: str, *, shared: SharedNumbers | None = None) -> None:
    """Project everything, and find that the rows and the numbers are those of the log."""
    head = await ledger.head()
    for projection in (DevicesProjection(), NodesProjection()):
        assert await Runner(projection, ledger, url, settings=QUICK, numbers=shared).catch_up(head)
    await verified(ledger, url)


async def verified(ledger: MemoryLedger, url: str) -> None:
    for projection in (DevicesProjection(), NodesProjection()):
        assert (await verify(projection, ledger, url)).first is None


def failures(url: str) -> int:
    ((count,),) = execute(url, "SELECT failures FROM gpuledger_live.device WHERE device = 'd1'")
    return int(count)


async def test_numbers_are_written_once_for_all_and_read_on_from(memory: MemoryLedger, url: str) -> None:
    await record(memory, [1, 2, 2, 5])
    await caught_up(memory, url)
    assert execute(url, STORED) == [(4, ORIGIN)]
    assert execute(url, "SELECT last, holes FROM gpuledger.numbers_seen") == [(5, [3, 4])]
    assert execute(url, "SELECT position, reason FROM gpuledger.number_refused") == [(3, None)]
    await record(memory, [4, 1, 6])
    await caught_up(memory, url)
    assert (failures(url), execute(url, "SELECT holes FROM gpuledger.numbers_seen")) == (5, [([3, 3],)])


async def test_rows_behind_the_numbers_pass_over_the_same_events(memory: MemoryLedger, url: str) -> None:
    """As after a kill between the writing of numbers and the commit of rows."""
    await record(memory, [1, 2])
    await caught_up(memory, url)
    ahead = SharedNumbers(memory, url)
    await ahead.at(await record(memory, [3, 2, 1, 4, 4]))
    await ahead.write()
    assert execute(url, STORED) == [(7, ORIGIN)]
    await caught_up(memory, url)
    assert failures(url) == 4


async def test_rows_ahead_of_the_numbers_read_what_is_in_between(memory: MemoryLedger, url: str) -> None:
    """As after a kill before numbers were written."""
    await record(memory, [1, 2])
    await caught_up(memory, url)
    kept_behind = SharedNumbers(memory, url)
    await record(memory, [3, 3])
    for projection in (DevicesProjection(), NodesProjection()):
        head = await memory.head()
        assert await Runner(projection, memory, url, settings=QUICK, numbers=kept_behind).catch_up(head)
    assert execute(url, STORED) == [(2, ORIGIN)]
    await record(memory, [3, 2, 4])
    await caught_up(memory, url)
    assert failures(url) == 4


async def test_an_orderly_end_leaves_nothing_to_be_read_again(memory: MemoryLedger, url: str) -> None:
    shared = SharedNumbers(memory, url)
    writing = asyncio.create_task(shared.keep_written())
    await shared.at(await record(memory, [1, 2, 2]))
    await stop(writing)
    assert writing.cancelled()
    assert execute(url, STORED) == [(3, ORIGIN)]


async def test_an_orderly_end_waits_no_longer_than_it_may(
    memory: MemoryLedger, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shared_numbers, "LAST_WRITE_MAX_S", 0.1)
    shared = SharedNumbers(memory, url)
    await shared.at(await record(memory, [1]))
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE gpuledger.numbers_seen_position")
        await begun_and_ended(shared)
    away = SharedNumbers(memory, "postgresql://127.0.0.1:1/none")
    away._numbers = shared._numbers
    await begun_and_ended(away)
    assert capsys.readouterr().out.count("numbers.not-written-at-end") == 2
    assert execute(url, STORED) == []


async def begun_and_ended(shared: SharedNumbers) -> None:
    writing = asyncio.create_task(shared.keep_written())
    await asyncio.sleep(0)
    await stop(writing)


async def test_two_processes_write_in_turns(memory: MemoryLedger, url: str) -> None:
    one, other = SharedNumbers(memory, url), SharedNumbers(memory, url)
    await one.at(await record(memory, [1, 2, 2]))
    await other.at(await record(memory, [3, 3]))
    await asyncio.gather(other.write(), one.write())
    await one.at(await record(memory, [7]))
    await one.write()
    assert execute(url, STORED) == [(6, ORIGIN)]
    await other.write()
    assert execute(url, STORED) == [(6, ORIGIN)]
    await other.at(await record(memory, [5, 7]))
    await other.write()
    assert execute(url, STORED) == [(8, ORIGIN)]
    await caught_up(memory, url)
    assert failures(url) == 5


async def test_numbers_of_another_log_are_begun_anew(memory: MemoryLedger, url: str) -> None:
    """The log was put back to an older copy, and went on otherwise; rows that had not got further go on as well."""
    await record(memory, [1, 2])
    await caught_up(memory, url)
    ahead = SharedNumbers(memory, url)
    await ahead.at(await record(memory, [3, 4]))
    await ahead.write()
    restored = MemoryLedger()
    await record(restored, [1, 2])
    await record(restored, [7, 3], kind="SBE")
    restored._messages[:2] = memory._messages[:2]
    await caught_up(restored, url)
    assert failures(url) == 4
    assert execute(url, "SELECT last, holes FROM gpuledger.numbers_seen") == [(7, [4, 6])]


async def test_a_process_that_runs_on_notices_that_somebody_took_the_numbers_away(
    memory: MemoryLedger, url: str
) -> None:
    shared = SharedNumbers(memory, url)
    await record(memory, [1, 2])
    await caught_up(memory, url, shared=shared)
    await shared.write()
    execute(url, "TRUNCATE gpuledger.numbers_seen, gpuledger.numbers_seen_position, gpuledger.number_refused")
    await record(memory, [2, 3])
    await shared.at(await memory.head())
    await shared.write()
    assert execute(url, STORED) == []
    await caught_up(memory, url, shared=shared)
    await shared.write()
    assert (failures(url), execute(url, STORED)) == (3, [(4, ORIGIN)])


async def test_who_is_behind_what_is_remembered_reads_the_log_for_itself(
    memory: MemoryLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_numbers, "REFUSED_MAX", 10)
    await record(memory, [1, 2])
    await caught_up(memory, url)
    ahead = SharedNumbers(memory, url)
    await ahead.at(await record(memory, [3, *[1] * 30, 4]))
    await ahead.write()
    ((_, complete_from),) = execute(url, STORED)
    assert complete_from > 20
    assert len(execute(url, "SELECT position FROM gpuledger.number_refused")) <= 10
    await caught_up(memory, url)
    assert failures(url) == 4


async def test_rows_of_the_build_before_are_taken_over(memory: MemoryLedger, url: str) -> None:
    await record(memory, [1, 2, 2, 5])
    await caught_up(memory, url)
    _as_the_build_before(url, "devices", "nodes")
    await record(memory, [5, 4])
    await caught_up(memory, url)
    assert failures(url) == 4
    assert execute(url, STORED) == [(6, 4)]
    assert execute(url, "SELECT projection FROM gpuledger.seen") == []
    older = type("Older", (DevicesProjection,), {"version": DevicesProjection.version - 1, "same_rows_as": ()})()
    with pytest.raises(VersionError):
        await Runner(older, memory, url, settings=QUICK).catch_up(await memory.head())


async def test_of_several_the_rows_that_are_least_far_give_their_numbers(memory: MemoryLedger, url: str) -> None:
    behind, ahead = DevicesProjection(), NodesProjection()
    assert await Runner(behind, memory, url, settings=QUICK).catch_up(await record(memory, [1, 2]))
    _as_the_build_before(url, "devices")
    assert await Runner(ahead, memory, url, settings=QUICK).catch_up(await record(memory, [2, 3]))
    _as_the_build_before(url, "nodes")
    shared = SharedNumbers(memory, url, [ahead, behind])
    await record(memory, [4, 3])
    await caught_up(memory, url, shared=shared)
    assert failures(url) == 4


async def test_a_rebuild_leaves_its_numbers(memory: MemoryLedger, url: str) -> None:
    await record(memory, [1, 2, 2, 5])
    await rebuild(DevicesProjection(), memory, url)
    assert execute(url, STORED) == [(4, 4)]
    await record(memory, [5, 4])
    await caught_up(memory, url)
    assert failures(url) == 4


async def test_verifying_finds_numbers_that_are_not_those_of_the_log(ledger: JetStreamLedger, url: str) -> None:
    for number in (1, 2, 4):
        await ledger.publish(outgoing(event(DeviceFailed(kind="DBE"), "d1", number=number)))
    await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(await ledger.head())
    execute(url, "UPDATE gpuledger.numbers_seen SET holes = '{}'")
    found = await verify(DevicesProjection(), ledger, url)
    assert (found.differences, found.first and found.first.table) == (1, NUMBERS)


def _as_the_build_before(url: str, *projections: str) -> None:
    """The bookkeeping as that build left it: the numbers with the rows of each projection."""
    for name in projections:
        execute(
            url,
            "INSERT INTO gpuledger.seen (projection, edition, source, epoch, last, holes, began) "
            "SELECT %s, 'live', source, epoch, last, holes, row_number() OVER (ORDER BY began) "
            "FROM gpuledger.numbers_seen",
            name,
        )
        version = {one.name: min(one.same_rows_as, default=one.version) for one in all_projections()}[name]
        execute(url, "UPDATE gpuledger.projection SET version = %s WHERE name = %s", version, name)
    execute(url, "TRUNCATE gpuledger.numbers_seen, gpuledger.numbers_seen_position, gpuledger.number_refused")
