"""The history of preflight checks is shortened: rows of pods that are gone leave, and folds agree about the rest."""

import asyncio
from datetime import timedelta

import pytest

from gpuledger.cli.times import format_time
from gpuledger.domain.histories import PREFLIGHT_CHECKS
from gpuledger.events.envelope import Decoded
from gpuledger.events.history import HistoryShortened
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import PreflightProjection
from support.cli import Cli
from support.events import event, hour
from support.ledgers import new_ledger
from support.preflight_results import GANG_STORY, crash_loop
from support.projections import QUICK, assert_true, execute, publish, running, table
from support.waiting import eventually

HISTORY = PREFLIGHT_CHECKS.name
BEGINS = hour(24)


def facts() -> list[Decoded]:
    """A pod that is gone, one of another name that is there, and two gangs of one id."""
    *there, _gone = crash_loop(3, uid="u3", first=100)
    return [*crash_loop(2), *there, *GANG_STORY]


def is_swept(url: str, name: str) -> bool:
    """Whether the pass through a table is over."""
    ((comment,),) = execute(url, "SELECT obj_description(to_regclass(%s), 'pg_class')", f"gpuledger_live.{name}")
    return comment is not None


async def test_pods_that_are_gone_leave_and_everything_else_stays(ledger: JetStreamLedger, url: str) -> None:
    projection, mark = PreflightProjection(), HistoryShortened(before=BEGINS)
    await publish(ledger, [*facts(), event(mark, HISTORY, source="/operators/eva")])

    async def both() -> bool:
        return await asyncio.to_thread(lambda: is_swept(url, HISTORY) and is_swept(url, "preflight_pod"))

    async with running(Runner(projection, ledger, url, settings=QUICK)):
        await eventually(both)
    kept = [("u3", number) for number in range(4)]
    assert table(url, "preflight_pod", "uid") == [("u3",)]
    assert sorted(table(url, HISTORY, "uid, attempt")) == [("u3", 0), *kept]
    assert len(table(url, "preflight_gang")) == 2
    await assert_true(ledger, url, [projection])
    await rebuild(projection, ledger, url)
    await assert_true(ledger, url, [projection])


def test_what_is_not_kept_is_refused(
    clean_nats_url: str, migrated_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("NATS_URL", clean_nats_url), ("DATABASE_URL", migrated_url), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    asyncio.run(_record(clean_nats_url))
    cli, before = Cli(capsys), format_time(BEGINS - timedelta(hours=1))
    assert cli("preflight", "list", "--at", before).code == 0
    assert cli("history", "shorten", HISTORY, "--before", format_time(BEGINS), "--yes").code == 0
    assert cli("preflight", "list").code == 0  # brings the rows up to the event
    for refused in (
        cli("preflight", "list", "--at", before),
        cli("why", "pod", "ml/w-1", "--no-kube", "--at", before),
        cli("sql", f"SELECT * FROM report.preflight_checks_at('{before}')"),
    ):
        assert refused.code != 0
        assert (HISTORY in refused.err, "kept since" in refused.err) == (True, True), refused.err
    assert cli("preflight", "list", "--at", format_time(BEGINS)).code == 0
    assert cli("verify", "preflight").code == 0


async def _record(nats_url: str) -> None:
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, facts())
