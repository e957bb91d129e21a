"""`gpuledger why node` on real servers: who set the node aside, and what came of reports."""

import asyncio
from collections.abc import Iterator

import pytest

from gpuledger.cli.times import format_time
from gpuledger.events.maintenance import NodeMaintenanceRequested
from support import servers
from support.cli import Cli
from support.events import event, hour
from support.health import card_report, in_force, reported
from support.ledgers import new_ledger
from support.projections import publish

BY_EVA = NodeMaintenanceRequested(owner="operators/eva", reason="Fan", message="it is loud")


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers with a report and a request in the log, and a migrated database."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        asyncio.run(_record(nats.url))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


async def _record(nats_url: str) -> None:
    found = reported((1, card_report("a", "79", message="fell off the bus")))
    eva = event(BY_EVA, "n1", at=2, source="/operators/eva")
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, [in_force(), *found, eva])


def test_who_set_a_node_aside_is_named(cli: Cli) -> None:
    found = cli("why", "node", "node/n1", "-o", "json").json()
    (request,) = found["requests"]
    assert (request["owner"], request["by"], request["state"]) == (
        "operators/eva",
        "operators/eva",
        "not carried out yet",
    )
    assert [(one["hop"], one["position"]) for one in request["hops"]] == [("requested", "1/3")]
    (report,) = found["reports"]
    assert (report["outcome"], report["position"], report["codes"]) == ("NoRules", "1/2", ["79"])
    page = cli("why", "node", "n1").out
    assert "Message:       it is loud" in page
    assert "Answer:  n1 is set aside by operators/eva since 2026-01-01T02:00:00Z, not carried out yet" in page
    assert cli("why", "node", "n1", "-o", "yaml").out.startswith("subject: node n1")


def test_the_past_has_what_had_happened_by_then(cli: Cli) -> None:
    before = cli("why", "node", "n1", "--at", format_time(hour(1.5)))
    assert "1 reports stand that it is unhealthy" in before.out
    assert cli("why", "node", "n1", "--at", format_time(hour(0.5)), "-o", "json").json()["reports"] == []


def test_a_node_without_events_is_not_found(cli: Cli) -> None:
    result = cli("why", "node", "n9")
    assert (result.code, result.err) == (1, "Error: node 'n9' was not found. List them with `gpuledger get nodes`.\n")
