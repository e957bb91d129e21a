"""`gpuledger history`: what it lists and refuses, and what commands about the past say of a time that is not kept."""

import asyncio
from datetime import timedelta

import pytest

from gpuledger.cli.times import format_time
from gpuledger.domain.histories import HISTORIES, KEPT_MIN
from gpuledger.runtime.clock import system_clock
from integration.test_shortened_histories import CONTAINERS, HISTORY, LONG_AGO, facts, kept
from support.cli import Cli
from support.events import hour
from support.ledgers import new_ledger
from support.projections import execute, publish


def at(hours: float) -> str:
    return format_time(hour(LONG_AGO + hours))


@pytest.fixture
def cli(
    clean_nats_url: str, migrated_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """The command line on two real servers, with containers' past in the log, and a migrated database."""
    asyncio.run(_record(clean_nats_url))
    for name, url in (("NATS_URL", clean_nats_url), ("DATABASE_URL", migrated_url), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, url)
    return Cli(capsys)


async def _record(nats_url: str) -> None:
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, facts())


def since(cli: Cli) -> dict[str, str | None]:
    """Since when each history is kept."""
    return {row["history"]: row["since"] for row in cli("history", "list", "-o", "json").json()}


REFUSED = {
    "no such history": ("workload_fact", at(1), "There is no history 'workload_fact' to shorten"),
    "too late": (HISTORY, format_time(system_clock() - KEPT_MIN + timedelta(hours=1)), "keeps its last 31 days"),
}


@pytest.mark.parametrize(("name", "before", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_shortened(cli: Cli, name: str, before: str, reason: str) -> None:
    refused = cli("history", "shorten", name, "--before", before, "--yes")
    assert refused.code != 0
    assert reason in refused.err
    assert since(cli) == dict.fromkeys(HISTORIES)


def test_it_asks_and_does_nothing_without_consent(cli: Cli) -> None:
    refused = cli("history", "shorten", HISTORY, "--before", at(300))
    assert refused.code != 0
    assert "for good? This needs your consent" in refused.err
    assert since(cli) == dict.fromkeys(HISTORIES)


def test_rows_of_another_build_would_not_follow(cli: Cli, migrated_url: str) -> None:
    cli("get", "nodes")
    versions = "UPDATE gpuledger.projection SET version = version - %s WHERE name = 'nodes' AND edition = 'live'"
    execute(migrated_url, versions, 1)
    try:
        refused = cli("history", "shorten", HISTORY, "--before", at(300), "--yes")
    finally:
        execute(migrated_url, versions, -1)
    assert refused.code != 0
    assert "The rows of nodes are of another build" in refused.err
    assert since(cli) == dict.fromkeys(HISTORIES)


def test_a_history_is_shortened_and_its_past_is_refused(cli: Cli, migrated_url: str) -> None:
    (held,) = [
        row["pod"]
        for row in cli("get", "allocations", "--at", at(100.5), "-o", "json").json()
        if row["pod"] != "always"
    ]
    assert held == "p100"
    done = cli("history", "shorten", HISTORY, "--before", at(300), "--yes")
    assert (done.code, done.err.count(f"is kept since {at(300)}")) == (0, 1), done.err
    assert cli("get", "allocations").code == 0  # brings the rows up to the event
    assert since(cli) == {**dict.fromkeys(HISTORIES), HISTORY: at(300)}
    assert len(kept(migrated_url)) == CONTAINERS + 1 - 299

    refused = cli("get", "allocations", "--at", at(299))
    assert refused.code != 0
    assert f"{HISTORY}: it is kept since" in refused.err
    assert "gpuledger sql --at" in refused.err
    assert f"{HISTORY}: it is kept since" in cli("diff", at(299), at(301)).err
    assert cli("diff", at(299), at(301), "--kind", "nodes").code == 0
    assert cli("get", "allocations", "--at", at(300)).code == 0

    at_the_time = f"SELECT pod FROM report.container_allocations_at('{at(299)}')"
    assert f"{HISTORY} is kept since" in cli("sql", at_the_time).err
    assert "Ask the log itself" in cli("sql", at_the_time).err
    assert cli("sql", at_the_time.replace(at(299), at(300))).code == 0

    again = cli("history", "shorten", HISTORY, "--before", at(200), "--yes")
    assert again.code != 0
    assert "is kept since" in again.err
    assert cli("verify", "allocations").code == 0


def test_the_log_still_knows(cli: Cli) -> None:
    """In event time everything that happened; as recorded, what the rows had."""
    assert cli("history", "shorten", HISTORY, "--before", at(300), "--yes").code == 0
    count = f"SELECT count(*) AS rows FROM gpuledger_live.{HISTORY} WHERE valid_to < '{at(300)}'"
    (at_the_time,) = cli("sql", "--at", at(310), count, "-o", "json").json()
    assert at_the_time["rows"] == 299
    position = 2 * CONTAINERS + 1
    (before,) = cli("sql", "--as-recorded", str(position), count, "-o", "json").json()
    (after,) = cli("sql", "--as-recorded", str(position + 1), count, "-o", "json").json()
    assert (before["rows"], after["rows"]) == (299, 0)

    at_the_time = f"SELECT count(*) AS held FROM report.container_allocations_at('{at(299)}')"
    (known_then,) = cli("sql", "--as-recorded", str(position), at_the_time, "-o", "json").json()
    assert known_then["held"] == 2
    refused = cli("sql", "--as-recorded", str(position + 1), at_the_time)
    assert refused.code != 0
    assert f"{HISTORY} is kept since" in refused.err
    assert cli("sql", "--as-recorded", str(position + 1), at_the_time.replace(at(299), at(300))).code == 0
    (still,) = cli("sql", "--at", at(310), at_the_time, "-o", "json").json()
    assert still["held"] == 2
