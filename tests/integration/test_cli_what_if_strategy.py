"""`gpuledger what-if strategy` on real servers: pods of a cluster and of an import; it changes nothing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import servers
from support.cli import Cli
from support.imports import NODE_HEADER, POD_HEADER, write
from support.ledgers import make_ledger_blocking, new_ledger
from support.projections import execute, publish
from support.sharing import asked, gone, gpu, observed, reserved, share, shared, story

STORY = story(
    ("n1", 0, shared(gpu(0), gpu(1))),
    ("ml/a", 1, observed("a")),
    ("ml/a", 1, reserved("a", share(0))),
    ("ml/b", 2, observed("b")),
    ("ml/b", 2, reserved("b", share(1))),
    ("ml/c", 3, observed("c", requests=asked(100))),
    ("ml/b", 5, gone("b")),
    ("ml/c", 5, reserved("c", share(1, 100))),
    ("ml/c", 9, gone("c")),
)


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers with pods that were spread over two cards in the log, and a migrated database."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        asyncio.run(_record(nats.url))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


async def _record(nats_url: str) -> None:
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, STORY)


def test_pods_would_not_have_waited(cli: Cli) -> None:
    result = cli("what-if", "strategy", "MostAllocated", "--since", "0", "-o", "json")
    assert result.code == 0, result.err
    was, would = result.json()
    assert (was["placement"], would["placement"]) == ("as recorded", "MostAllocated")
    assert (was["pods"], was["placed"], was["waited_hours"]) == (3, 3, 2.0)
    assert (would["pods"], would["placed"], would["waited_hours"]) == (3, 3, 0.0)
    assert (was["gpus"], was["rate"], would["rate"]) == (2.0, 0.5278, 0.6389)
    assert "From 2026-01-01T00:00:00+00:00 to 2026-01-01T09:00:00+00:00" in result.err


def test_it_compares_with_another_strategy_and_since_a_position(cli: Cli) -> None:
    result = cli("what-if", "strategy", "Random", "--against", "LeastAllocated", "--since", "5", "--seed", "3")
    assert result.code == 0, result.err
    heading, first, second = result.out.splitlines()
    assert heading.split() == [
        *("PLACEMENT", "PODS", "PLACED", "WAITED-HOURS", "GPUS", "ALLOCATED", "RATE", "FRAGMENT"),
    ]
    # Both pods that were there keep their cards, so that the third one waits for either strategy.
    assert first.split()[:4] == ["LeastAllocated", "3", "3", "2"]
    assert second.split()[:4] == ["Random", "3", "3", "2"]


def test_nothing_came_since(cli: Cli) -> None:
    result = cli("what-if", "strategy", "MinorOrder", "--since", str(len(STORY)))
    assert (result.code, "Nothing about pods" in result.err) == (0, True)


def test_it_records_and_writes_nothing(cli: Cli, urls: dict[str, str]) -> None:
    tables = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables"
    before = execute(urls["DATABASE_URL"], tables), cli("log", "stats", "-o", "json").json()
    assert cli("what-if", "strategy", "FragmentationGradientDescent", "--since", "0").code == 0
    assert (execute(urls["DATABASE_URL"], tables), cli("log", "stats", "-o", "json").json()) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("Best",), "There is no strategy Best. Name one of MinorOrder"),
        (("Random", "--against", "Best"), "There is no strategy Best."),
    ],
)
def test_an_unknown_strategy(cli: Cli, arguments: tuple[str, ...], says: str) -> None:
    result = cli("what-if", "strategy", *arguments, "--since", "0")
    assert (result.code, result.out) == (2, "")
    assert says in result.err


def test_an_imported_trace(
    tmp_path: Path, clean_nats_url: str, migrated_url: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name, value in {"NATS_URL": clean_nats_url, "DATABASE_URL": migrated_url, "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    make_ledger_blocking(clean_nats_url)
    nodes = write(tmp_path / "nodes.csv", NODE_HEADER, "n1,64000,262144,2,T4")
    pods = write(tmp_path / "pods.csv", POD_HEADER, "p1,1,1,1,500,,LS,Succeeded,0,7200,3600")
    cli = Cli(capsys)
    assert cli("import", "openb", str(nodes), str(pods)).code == 0
    result = cli("what-if", "strategy", "FragmentationGradientDescent", "--since", "0", "-o", "json")
    assert result.code == 0, result.err
    was, would = result.json()
    assert (was["waited_hours"], was["rate"], was["fragment"]) == (1.0, 0.125, None)
    assert (would["waited_hours"], would["rate"], would["fragment"]) == (0.0, 0.25, 0.0)
    assert "does not say which GPUs these pods had" in result.err
