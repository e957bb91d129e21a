"""Tables hold everything in the log before a command reads them, whoever has to project it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpuledger.cli.render import TerminalReporter
from gpuledger.db import engine
from gpuledger.db.engine import connect
from gpuledger.db.locks import try_lock
from gpuledger.events.device import DeviceAttached, DeviceFailed, DeviceInserted
from gpuledger.projection.runner import writer_lock
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.queries.backend import CURRENT_WAIT_S, Backend, bring_current
from gpuledger.tools.queries.pool_name import PoolName
from gpuledger.tools.timeline import device_timeline, node_timeline, pool_timeline
from support.bootstrap import detected
from support.cli import Cli
from support.events import event
from support.ledgers import jetstream_ledger, make_ledger_blocking
from support.postgres_proxies import Pooler
from support.projections import checkpoint, execute, publish
from support.waiting import eventually


@pytest.fixture
async def backend(clean_nats_url: str, url: str) -> AsyncIterator[Backend]:
    async with jetstream_ledger(clean_nats_url) as ledger:
        yield Backend(ledger, url, clean_nats_url, None, TerminalReporter())


@pytest.mark.parametrize("command", [("verify",), ("replay", "--dry-run"), ("report", "fleet"), ("log", "gaps")])
def test_an_empty_ledger_is_no_failure(
    command: tuple[str, ...],
    clean_nats_url: str,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NATS_URL", clean_nats_url)
    monkeypatch.setenv("DATABASE_URL", url)
    make_ledger_blocking(clean_nats_url)
    result = Cli(capsys)(*command)
    assert (result.code, "Error" in result.err) == (0, False)


@pytest.mark.parametrize("by_transaction", [True, False])
def test_doctor_refuses_a_pooler_that_shares_sessions_and_warns_of_any_other(
    by_transaction: bool,
    clean_nats_url: str,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Pooler(url, by_transaction=by_transaction) as pooler:
        monkeypatch.setenv("NATS_URL", clean_nats_url)
        monkeypatch.setenv("DATABASE_URL", pooler.url)
        result = Cli(capsys)("doctor", "-o", "json")
    checks = {row["check"]: row for row in result.json()}
    assert result.code == (1 if by_transaction else 0)
    if by_transaction:
        assert checks["postgresql server"]["status"] == "failed"
        assert "pool_mode" in checks["postgresql server"]["detail"]
    else:
        assert checks["pooler"]["status"] == "warning"
        assert "keepalives" in checks["pooler"]["detail"]


async def test_what_another_command_leaves_undone_is_projected_here(
    backend: Backend, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head = await publish(backend.ledger, [event(DeviceFailed(kind="DBE"), "d1", number=number) for number in (1, 2)])
    sessions: set[int] = set()
    looked: set[object] = set()

    async def looked_often() -> bool:
        query = "SELECT pid, query_start FROM pg_stat_activity WHERE application_name = 'gpuledger position'"
        for pid, time in execute(url, query):
            sessions.add(pid)
            looked.add(time)
        return len(looked) > 5

    async with asyncio.timeout(CURRENT_WAIT_S * 2), connect(url, application_name="another command") as connection:
        assert await try_lock(connection, writer_lock("devices"))
        work = asyncio.create_task(bring_current(backend, [DevicesProjection()]))
        await eventually(looked_often, interval_s=0.001)
    await work
    assert len(sessions) == 1
    found = await checkpoint(url, "devices")
    assert found is not None
    assert found.position == head
    assert "behind the log" not in capsys.readouterr().err


async def test_a_timeline_is_asked_for_over_one_connection(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = [
        event(DeviceInserted(slot="n1/0"), "card", number=1),
        event(detected("card", "n1"), "gpu", number=2),
        event(DeviceAttached(slot="n1/0", name="gpu"), "card", number=3),
    ]
    await publish(backend.ledger, facts)
    pool = PoolName("team", "pool")
    for asked in (device_timeline(backend, "card"), node_timeline(backend, "n1"), pool_timeline(backend, pool)):
        await asked  # the rows are there from now on
    opened: list[str] = []
    really = engine.open_connection

    async def counted(url: str, **given: Any) -> engine.AsyncConnection:
        opened.append(given["application_name"])
        return await really(url, **given)

    monkeypatch.setattr(engine, "open_connection", counted)
    rows, objects = await device_timeline(backend, "card")
    assert opened == ["gpuledger timeline"]
    assert [row["event"] for row in rows] == ["inserted", "attached", "detected"]
    assert objects == [("GPUDevice", "gpu")]
    for asked in (node_timeline(backend, "n1"), pool_timeline(backend, pool)):
        opened.clear()
        await asked
        assert opened == ["gpuledger timeline"]
