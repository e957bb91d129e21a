"""A leader whose machine vanishes: another one takes over in time, and never while the first still acts."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from gpuledger.db.engine import connect
from gpuledger.db.locks import LockCheck, lock_holders
from gpuledger.events.envelope import Decoded
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner, RunnerSettings, writer_lock
from gpuledger.projection.writer import RowWriter
from gpuledger.readmodels.projections import DevicesProjection
from support.events import outgoing
from support.namespaces import FarMachine, ReachablePostgres, far_machine
from support.paths import ROOT
from support.postgres_proxies import SilentProxy
from support.processes import Program
from support.projections import QUICK, assert_true, execute, prepare, publish, reaches, running, stands_by, table
from support.runners import failures
from support.servers import short_directory
from support.waiting import eventually

TAKE_OVER_MAX_S = 15.0
"""What is promised, from the last packet to the next leader."""

LOCK = "leading"


@pytest.fixture
def far() -> Iterator[FarMachine]:
    with far_machine() as machine:
        yield machine


@pytest.fixture
def reachable_url(far: FarMachine) -> Iterator[str]:
    """A migrated database on a server that the far machine reaches too."""

    class Reachable(ReachablePostgres):
        address = far.near

    with short_directory() as directory, Reachable(directory / "postgres") as server:
        yield prepare(server.url)


@asynccontextmanager
async def program(log: Path, *command: str) -> AsyncIterator[Program]:
    one = Program(("env", f"PYTHONPATH={ROOT / 'tests'}", *command), log)
    await one.start()
    try:
        yield one
    finally:
        await one.kill()


async def leader_of(url: str, lock: str) -> str | None:
    """The process that holds a lock."""
    async with connect(url, application_name="test") as connection:
        holder = (await lock_holders(connection, [lock]))[lock]
    return holder and holder.process


@pytest.mark.long
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_rows_have_another_writer_soon_after_the_machine_of_the_first_vanished(
    busy: bool, far: FarMachine, reachable_url: str, ledger: JetStreamLedger, clean_nats_url: str, tmp_path: Path
) -> None:
    url, lock = reachable_url, writer_lock("devices")
    await publish(ledger, failures(range(1, 11)))
    with SilentProxy(clean_nats_url, far.near) as nats:  # its own packets vanish with the others
        command = far.command(sys.executable, "-m", "support.projector", nats.url, far.url(url))
        async with program(tmp_path / "far.log", *command) as first:
            await reaches(url, "devices", 10)
            before = await leader_of(url, lock)
            async with running(Runner(DevicesProjection(), ledger, url, settings=QUICK)):
                await eventually(lambda: stands_by(url, "gpuledger devices"))
                publishing = asyncio.create_task(_publish(ledger, range(11, 2011) if busy else range(0)))
                if busy:
                    await reaches(url, "devices", 30)
                far.vanish()
                vanished_s = time.monotonic()

                async def taken_over() -> bool:
                    return await leader_of(url, lock) not in {None, before}

                await eventually(taken_over)
                took_s = time.monotonic() - vanished_s
                print(f"take-over {took_s:.1f} s after the machine vanished ({'busy' if busy else 'idle'})")
                await publishing
                await eventually(lambda: _has_noticed(tmp_path / "far.log"))
                head = await publish(ledger, failures(range(2011, 2021)))
                await reaches(url, "devices", head)
                far.come_back()
                await eventually(lambda: _has_asked_again(url, far))
                assert (await leader_of(url, lock) or "").endswith(f"/{os.getpid()}")
                assert first.running
    assert took_s <= TAKE_OVER_MAX_S
    assert len(table(url, "failure")) == (2020 if busy else 20)
    await assert_true(ledger, url, [DevicesProjection()])


async def _has_noticed(log: Path) -> bool:
    """Whether the one that is cut off found out by itself."""
    lines = await asyncio.to_thread(log.read_text)
    return any("projection.interrupted" in line and "devices" in line for line in lines.splitlines())


async def _publish(ledger: JetStreamLedger, numbers: range) -> None:
    for number in numbers:
        await publish(ledger, failures(range(number, number + 1)))


async def _has_asked_again(url: str, far: FarMachine) -> bool:
    """Whether the machine that came back stands by."""
    async with connect(url, application_name="test") as connection:
        cursor = await connection.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'gpuledger devices' AND client_addr = %s "
            "AND query LIKE '%%try_advisory%%'",
            [far.far],
        )
        return await cursor.fetchone() is not None


@pytest.mark.long
async def test_who_is_cut_off_stops_before_another_one_leads(
    far: FarMachine, reachable_url: str, tmp_path: Path
) -> None:
    logs = tmp_path / "far.log", tmp_path / "near.log"
    leading = sys.executable, "-m", "support.leading"
    async with program(logs[0], *far.command(*leading, far.url(reachable_url), LOCK)):
        await eventually(lambda: _printed(logs[0], "leads"))
        async with program(logs[1], *leading, reachable_url, LOCK):
            await eventually(lambda: stands_by(reachable_url, "leading"))
            far.vanish()
            vanished_s = time.monotonic()
            await eventually(lambda: _printed(logs[1], "leads"))
    (ended_s,), (leads_s,) = _times(logs[0], "ended"), _times(logs[1], "leads")
    print(
        f"the first ended {ended_s - vanished_s:.1f} s, the next led {leads_s - vanished_s:.1f} s after packets stopped"
    )
    assert ended_s < leads_s
    assert leads_s - vanished_s <= TAKE_OVER_MAX_S


async def _printed(log: Path, what: str) -> bool:
    return bool(_times(log, what))


def _times(log: Path, what: str) -> list[float]:
    lines = [line.split() for line in log.read_text().splitlines()]
    return [float(line[1]) for line in lines if len(line) == 2 and line[0] == what]


IDLE = replace(QUICK, lock_check=LockCheck(answer_timeout_s=1.0))  # less would cost it the lock too early
COMMITTING = replace(QUICK, tick_s=60.0, batch_timeout_s=1.0)
MORE = failures(range(11, 16))


@pytest.mark.parametrize(("settings", "more"), [(IDLE, ()), (COMMITTING, MORE)], ids=("idle", "commits"))
async def test_a_writer_that_is_cut_off_stops_being_the_writer(
    ledger: JetStreamLedger, url: str, settings: RunnerSettings, more: Sequence[Decoded]
) -> None:
    """An idle one finds out by its heartbeat; one that waits for the end of a commit has a bound for that."""
    labels = {"projection": "devices", "error": "LockLostError"}
    lost_before = REGISTRY.get_sample_value("gpuledger_projection_errors_total", labels) or 0
    with SilentProxy(url) as proxy:
        async with running(Runner(DevicesProjection(), ledger, proxy.url, settings=settings)):
            await reaches(url, "devices", await publish(ledger, failures(range(1, 11))))
            before = await session_of(url)
            async with running(Runner(DevicesProjection(), ledger, url, settings=QUICK)):
                await eventually(lambda: stands_by(url, "gpuledger devices"))
                await eventually(lambda: has_committed(url, before))
                proxy.swallow()
                await ledger.publish_many([outgoing(one) for one in more])

                async def another_leads() -> bool:
                    return await session_of(url) not in {None, before}

                await eventually(another_leads)
                await reaches(url, "devices", await publish(ledger, failures(range(16, 21))))
    assert (REGISTRY.get_sample_value("gpuledger_projection_errors_total", labels) or 0) > lost_before
    await assert_true(ledger, url, [DevicesProjection()])


async def test_an_idle_writer_that_is_cut_off_while_it_asks_for_its_rows_stops_as_soon(
    ledger: JetStreamLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {"projection": "devices", "error": "LockLostError"}
    lost_before = REGISTRY.get_sample_value("gpuledger_projection_errors_total", labels) or 0
    confirm, is_cut_off = RowWriter.confirm, asyncio.Event()
    with SilentProxy(url) as proxy:

        async def cut_off(writer: RowWriter) -> int:
            proxy.swallow()
            is_cut_off.set()
            return await confirm(writer)

        async with running(Runner(DevicesProjection(), ledger, proxy.url, settings=IDLE)):
            await reaches(url, "devices", await publish(ledger, failures(range(1, 11))))
            monkeypatch.setattr(RowWriter, "confirm", cut_off)
            await is_cut_off.wait()
            monkeypatch.setattr(RowWriter, "confirm", confirm)
            async with running(Runner(DevicesProjection(), ledger, url, settings=QUICK)):
                await reaches(url, "devices", await publish(ledger, failures(range(11, 21))))
    assert (REGISTRY.get_sample_value("gpuledger_projection_errors_total", labels) or 0) > lost_before
    await assert_true(ledger, url, [DevicesProjection()])


async def has_committed(url: str, session: int | None) -> bool:
    """Whether a session has the answer to its last commit: it asked something else since, or nothing for a while.

    A writer that is cut off in between waits for the answer as long as a batch may take, and no test does.
    """
    later = "query <> 'COMMIT' OR now() - state_change > interval '0.2 s'"
    query = f"SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'idle' AND ({later})"
    return bool(execute(url, query, session))


async def session_of(url: str) -> int | None:
    """The session that holds the lock of the devices' writer."""
    found = execute(
        url, "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'gpuledger devices %%/%%' AND datname = %s",
        url.rpartition("/")[2],
    )  # fmt: skip
    return found[0][0] if found else None
