"""Watchers and status writer write nothing while the log is not the one that the rows follow, and then go on."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from gpuledger.api.kinds import CONFIG_MAPS, LEDGER_CONFIG_MAP, LEDGER_CONFIG_MAP_NAMESPACE, NODES
from gpuledger.db.engine import connect
from gpuledger.db.locks import WATCHERS_LOCK, stand_by
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.watchers.resources import nodes
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from support.inventory_decisions import Decided, settled
from support.ledgers import new_ledger
from support.log_copies import keep_copy, put_back
from support.projections import QUICK, execute, publish
from support.runners import failures
from support.statuswriting import CountingClient, status_writer
from support.waiting import eventually
from support.watching import comes_of, recorded_of, watching

FOLLOW = "UPDATE gpuledger.projection SET ledger_id = %s"
NODE_KINDS = (nodes.kind("gpu.deckhouse.io/enabled"),)


@asynccontextmanager
async def followed_by_devices(ledger: Ledger, url: str) -> AsyncIterator[FollowedLog]:
    async with aclosing(FollowedLog([DevicesProjection()], ledger, url, check_interval_s=0.02)) as followed:
        yield followed


async def fold(ledger: JetStreamLedger, url: str) -> None:
    """Rows of one projection, which follow the log to its end."""
    assert await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(await ledger.head())


async def put_node(client: KubeClient, name: str) -> None:
    await client.apply(NODES, {"metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "a"}}})


async def reported(followed: FollowedLog) -> None:
    """Return when rows and log were found not to belong together."""

    async def is_reported() -> bool:
        return followed.problem is not None

    await eventually(is_reported)


async def test_watchers_record_nothing_into_a_log_that_the_rows_do_not_follow(
    client: KubeClient, ledger: JetStreamLedger, url: str
) -> None:
    await publish(ledger, failures(range(1, 4)))
    await fold(ledger, url)
    execute(url, FOLLOW, "another")
    await put_node(client, "w1")
    async with (
        followed_by_devices(ledger, url) as followed,
        watching(client, ledger, url, followed),
    ):
        await reported(followed)
        assert await ledger.head() == 3
        execute(url, FOLLOW, ledger.identity.ledger_id)
        await comes_of(NODE_KINDS, ledger, "node w1 observed")
        execute(url, FOLLOW, "another")
        await reported(followed)
        await put_node(client, "w2")
        execute(url, FOLLOW, ledger.identity.ledger_id)
        await comes_of(NODE_KINDS, ledger, "node w1 observed", "node w2 observed")


async def test_watchers_record_again_what_an_older_copy_lacks_once_the_loss_is_accepted(
    client: KubeClient, fresh_nats: NatsServer, url: str, tmp_path: Path
) -> None:
    await put_node(client, "w1")
    async with (
        new_ledger(fresh_nats.url, heartbeat_s=0.1) as ledger,
        followed_by_devices(ledger, url) as followed,
        watching(client, ledger, url, followed),
    ):
        await comes_of(NODE_KINDS, ledger, "node w1 observed")
        keep_copy(fresh_nats, tmp_path / "copy")
        await put_node(client, "w2")
        await comes_of(NODE_KINDS, ledger, "node w1 observed", "node w2 observed")
        await fold(ledger, url)
        put_back(fresh_nats, tmp_path / "copy")
        await reported(followed)
        assert await recorded_of(NODE_KINDS, ledger) == ["node w1 observed"]
        await rebuild(DevicesProjection(), ledger, url, accept_loss=True)
        await comes_of(NODE_KINDS, ledger, "node w1 observed", "node w2 observed")


async def test_the_status_writer_neither_claims_nor_writes_until_the_rows_follow_the_log(
    decided: Decided, url: str, ours: CountingClient
) -> None:
    await decided.node("w1")
    await fold(decided.ledger, url)
    execute(url, FOLLOW, "another")
    async with (
        followed_by_devices(decided.ledger, url) as followed,
        status_writer(decided.ledger, url, ours, followed=followed) as writer,
    ):
        await reported(followed)
        health = writer.health()
        assert (health.state, health.reason) == ("log-changed", followed.problem)
        assert ours.written == []
        with pytest.raises(NotFoundError):
            await ours.get(CONFIG_MAPS, LEDGER_CONFIG_MAP, LEDGER_CONFIG_MAP_NAMESPACE)
        execute(url, FOLLOW, decided.ledger.identity.ledger_id)
        await settled(writer, decided)
        ours.written.clear()
        execute(url, FOLLOW, "another")
        await reported(followed)
        await decided.node("w2")
        assert ours.objects_written() == []  # Events about w1 may come late
        execute(url, FOLLOW, decided.ledger.identity.ledger_id)
        await settled(writer, decided)
        assert ours.objects_written() != []


async def test_who_leads_the_watchers_again_records_what_an_older_copy_lacks_by_then(
    client: KubeClient, fresh_nats: NatsServer, url: str, tmp_path: Path
) -> None:
    """It noticed nothing while it stood by, and no rows hold it back."""
    await put_node(client, "w1")
    async with new_ledger(fresh_nats.url, heartbeat_s=0.1) as ledger, watching(client, ledger, url):
        await comes_of(NODE_KINDS, ledger, "node w1 observed")
        keep_copy(fresh_nats, tmp_path / "copy")
        await put_node(client, "w2")
        await comes_of(NODE_KINDS, ledger, "node w1 observed", "node w2 observed")
        async with connect(url, application_name="another leader") as another:
            leaders = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s"
            execute(url, leaders, "gpuledger watchers%")
            await stand_by(another, WATCHERS_LOCK, interval_s=0.01)
            put_back(fresh_nats, tmp_path / "copy")
            assert await recorded_of(NODE_KINDS, ledger) == ["node w1 observed"]
        await comes_of(NODE_KINDS, ledger, "node w1 observed", "node w2 observed")
