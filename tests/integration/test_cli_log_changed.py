"""Commands that record refuse a log that the rows in the database do not follow."""

import json
from pathlib import Path

import pytest

from gpuledger.events.device import DeviceFailed
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from support.cli import Cli, Run, aside
from support.projections import QUICK, execute, publish
from support.runners import failures

DRAFT = {"type": DeviceFailed.TYPE, "subject": "d9", "time": "2026-01-01T00:00:00Z", "data": {"kind": "DBE"}}


@pytest.fixture
def run(clean_nats_url: str, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line on the servers of the test."""
    for name, value in {"NATS_URL": clean_nats_url, "DATABASE_URL": url, "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    return aside(Cli(capsys))


async def test_nothing_is_recorded_into_a_log_that_the_rows_do_not_follow(
    ledger: JetStreamLedger, url: str, run: Run, tmp_path: Path
) -> None:
    head = await publish(ledger, failures(range(1, 4)))
    await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(head)
    file = tmp_path / "drafts.jsonl"
    file.write_text(json.dumps(DRAFT))
    execute(url, "UPDATE gpuledger.projection SET ledger_id = 'another'")
    for arguments in (("import", "jsonl", str(file)), ("log", "skip", "2", "--reason", "a test", "--yes")):
        result = await run(*arguments)
        assert (result.code, "The log was replaced: the rows of projection devices follow" in result.err) == (1, True)
    assert await ledger.head() == head
    execute(url, "UPDATE gpuledger.projection SET ledger_id = %s", ledger.identity.ledger_id)
    assert (await run("import", "jsonl", str(file))).code == 0
    assert await ledger.head() != head


async def test_a_position_of_a_restored_log_may_be_skipped(
    ledger: JetStreamLedger, url: str, run: Run, tmp_path: Path
) -> None:
    """The skip may be among what was lost, and rows cannot be rebuilt without it."""
    head = await publish(ledger, failures(range(1, 4)))
    await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(head)
    execute(url, "UPDATE gpuledger.projection SET last_digest = repeat('0', 64)")
    file = tmp_path / "drafts.jsonl"
    file.write_text(json.dumps(DRAFT))
    result = await run("import", "jsonl", str(file))
    assert (result.code, "The log was restored" in result.err) == (1, True)
    assert (await run("log", "skip", "2", "--reason", "a test", "--yes")).code == 0
    assert await ledger.head() == head + 1
