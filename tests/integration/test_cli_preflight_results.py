"""Preflight checks and gangs on the command line."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from gpuledger.cli.times import format_time
from gpuledger.events.preflight import PodPreflightObserved
from support import servers
from support.cli import Cli, next_line, watching
from support.events import hour
from support.ledgers import new_ledger
from support.preflight_results import GANG_STORY, crash_loop, ended, in_order
from support.projections import publish

FAILING = PodPreflightObserved(uid="u3", node="n2", gang="g", checks=(ended("nccl", at=4, exit_code=1),))


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers with checks in the log, and a migrated database."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        asyncio.run(_record(nats.url))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


async def _record(nats_url: str) -> None:
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, [*crash_loop(2), *in_order([("ml/w-1", 4, FAILING)], first=100), *GANG_STORY])


@pytest.mark.parametrize(
    ("options", "pods"),
    [
        ((), ["ml/w-1"]),
        (("--all",), ["ml/w-0"] * 4 + ["ml/w-1"]),
        (("--all", "--failed"), ["ml/w-0"] * 2 + ["ml/w-1"]),
        (("--all", "--node", "n2"), ["ml/w-1"]),
        (("-n", "other", "--all"), []),
        (("-n", "other", "-A"), ["ml/w-1"]),
        (("--at", format_time(hour(0.7))), ["ml/w-0"] * 2),
        (("ml/w-0",), ["ml/w-0"] * 4),
        (("w-0", "pod/w-1", "-n", "ml", "--failed"), ["ml/w-0"] * 2 + ["ml/w-1"]),
        (("preflightcheck/ml/w-1",), ["ml/w-1"]),
    ],
)
def test_options_choose_attempts(cli: Cli, options: tuple[str, ...], pods: list[str]) -> None:
    assert [row["pod"] for row in cli("preflight", "list", *options, "-o", "json").json()] == pods


def test_a_pod_is_shown_with_its_attempts_gang_and_what_to_do(cli: Cli) -> None:
    page = cli("preflight", "show", "w-1", "-n", "ml").out
    assert "gpuledger why node n2" in page
    assert "not-configured" in page
    found = cli("preflight", "show", "ml/w-0", "-o", "json").json()
    assert [one["outcome"] for one in found["checks"]] == ["passed", "failed", "failed", "passed"]
    of_its_time = (found["gangState"]["state"], found["gangState"]["dissolved_at"], found["peers"])
    assert of_its_time == ("complete", format_time(hour(3)), []), "a gang of that id came later"


@pytest.mark.parametrize("name", [("ml/w-1",), ("w-1", "-n", "ml"), ("pod/w-1", "-n", "ml"), ("ml/w-1", "-n", "ml")])
def test_a_pod_is_named_as_kubectl_names_it(cli: Cli, name: tuple[str, ...]) -> None:
    assert cli("preflight", "show", *name, "-o", "json").json()["pod"] == "ml/w-1"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("show", "ml/w-1", "-n", "other"), 2, "is in namespace ml, not in other"),
        (("list", "ml/none"), 1, "preflightcheck 'ml/none' was not found"),
        (("gangs", "ml/none"), 1, "preflightgang 'ml/none' was not found"),
        (("list", "-w", "--at", "-2h"), 2, "--at does not apply"),
    ],
)
def test_what_cannot_be_shown_is_an_error(cli: Cli, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = cli("preflight", *arguments)
    assert (result.code, message in result.err) == (code, True), result.err


async def test_watch_shows_every_further_attempt(migrated_url: str) -> None:
    failing = FAILING.model_copy(update={"checks": (ended("nccl", 1, at=5, exit_code=1),)})
    with servers.nats_server() as nats:
        environ = os.environ | {"NATS_URL": nats.url, "DATABASE_URL": migrated_url}
        async with new_ledger(nats.url) as ledger:
            await publish(ledger, in_order([("ml/w-1", 4, FAILING)]))
            async with watching(environ, "preflight", "list", "-w", "-o", "csv") as process:
                await next_line(process)  # The heading.
                assert (await next_line(process)).startswith("u3,nccl,0,")
                await publish(ledger, in_order([("ml/w-1", 5, failing)], first=2))
                assert (await next_line(process)).startswith("u3,nccl,1,")


def test_a_pod_without_checks_is_an_error(cli: Cli) -> None:
    result = cli("preflight", "show", "ml/nobody")
    assert (result.code, "No preflight check of pod 'ml/nobody' was seen" in result.err) == (1, True)


def test_gangs_and_reports(cli: Cli) -> None:
    assert [row["state"] for row in cli("preflight", "gangs", "-o", "json").json()] == ["not-configured"]
    assert [row["state"] for row in cli("preflight", "gangs", "--all", "-o", "json").json()] == [
        "complete",
        "not-configured",
    ]
    (row,) = cli("report", "preflight-failures", "--node", "n2", "-o", "json").json()
    assert (row["check_name"], row["attempts"]) == ("nccl", 1)


def test_the_tables_are_proven(cli: Cli) -> None:
    cli("preflight", "list")
    assert cli("verify", "preflight").code == 0
