"""A cluster belongs to one ledger: another writes nothing to it, says whose it is, and goes on once it is its own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from prometheus_client import REGISTRY

from gpuledger.api.kinds import CONFIG_MAPS, GPU_DEVICES, LEDGER_CONFIG_MAP, LEDGER_CONFIG_MAP_NAMESPACE
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ForeignClusterError
from gpuledger.edge.kube.ownership import ClusterOwner, claim, take_over
from gpuledger.edge.statuswriter.reconcile.repair import remove_strange
from gpuledger.edge.statuswriter.reconcile.verify import compare
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from support import servers
from support.cli import Run
from support.inventory_decisions import Decided, names, settled, writing
from support.kube_fleet import create
from support.kube_server import KubeServer
from support.ledgers import jetstream_ledger
from support.statuswriting import QUICK, CountingClient, counting
from support.waiting import eventually

SETTINGS = replace(QUICK, ownership_check_s=0.05)
PATH = CONFIG_MAPS.path(LEDGER_CONFIG_MAP_NAMESPACE)


class Second(NamedTuple):
    """A second ledger with a database of its own, and its client of the same cluster."""

    decided: Decided
    database_url: str
    client: CountingClient


@pytest.fixture
def second_database_url(postgres_server_url: str) -> Iterator[str]:
    with servers.fresh_database(postgres_server_url) as url:
        yield url


@pytest.fixture
async def second(
    fresh_nats: NatsServer, second_database_url: str, kube: KubeServer, client: KubeClient
) -> AsyncIterator[Second]:
    async with jetstream_ledger(fresh_nats.url) as ledger, counting(kube.kubeconfig) as theirs:
        yield Second(Decided(ledger), second_database_url, theirs)


async def owner_in(client: KubeClient) -> str:
    """The id of the ledger that the cluster belongs to."""
    found = await client.get(CONFIG_MAPS, LEDGER_CONFIG_MAP, LEDGER_CONFIG_MAP_NAMESPACE)
    return str(found["data"]["ledger-id"])


async def versions(client: KubeClient) -> dict[str, str]:
    """The resource version of every GPUDevice."""
    return {name: (await device(client, name))["metadata"]["resourceVersion"] for name in await names(client)}


async def device(client: KubeClient, name: str) -> dict[str, dict[str, str]]:
    """A GPUDevice."""
    return await client.get(GPU_DEVICES, name)


async def becomes(writer: StatusWriter, state: str) -> None:
    """Return when the writer is in the state."""

    async def is_in_state() -> bool:
        return writer.health().state == state

    await eventually(is_in_state)


async def test_a_ledger_claims_a_cluster_before_its_first_write(
    decided: Decided, database_url: str, ours: CountingClient
) -> None:
    await decided.node("w1")
    async with writing(decided, database_url, ours, SETTINGS) as writer:
        await settled(writer, decided)
    assert ours.written[0] == f"POST {PATH}"
    assert await owner_in(ours) == decided.ledger.identity.ledger_id
    ours.written.clear()
    async with writing(decided, database_url, ours, SETTINGS) as writer:
        await settled(writer, decided)
    assert ours.objects_written() == []
    assert f"POST {PATH}" not in ours.written


async def test_another_ledger_writes_nothing_and_says_whose_the_cluster_is(
    decided: Decided, database_url: str, ours: CountingClient, second: Second
) -> None:
    await decided.node("w1")
    async with writing(decided, database_url, ours, SETTINGS) as first:
        await settled(first, decided)
        before = await versions(ours)
        await second.decided.node("w9")
        async with writing(second.decided, second.database_url, second.client, SETTINGS) as other:
            await becomes(other, "foreign-cluster")
            reason = other.health().reason or ""
            for part in (
                decided.ledger.identity.ledger_id,
                second.decided.ledger.identity.ledger_id,
                ours.url,
                "--take-over",
                f"configmap {LEDGER_CONFIG_MAP}",
            ):
                assert part in reason
            await decided.node("w2")
            await settled(first, decided)
        assert second.client.written == []
        after = await versions(ours)
        assert before.items() <= after.items()
        assert set(after) == {"w1-0", "w1-1", "w2-0", "w2-1"}


async def test_who_loses_the_cluster_stops_writing(
    decided: Decided, database_url: str, ours: CountingClient, second: Second
) -> None:
    """The new owner's writer begins once the other has stopped: one process can hold the metrics of only one."""
    async with writing(decided, database_url, ours, SETTINGS) as first:
        await settled(first, decided)
        owner = ClusterOwner(second.decided.ledger.identity.ledger_id, "2026-01-01T00:00:00+00:00", "desk")
        before = await take_over(second.client, owner)
        assert before is not None
        assert before.ledger_id == decided.ledger.identity.ledger_id
        assert await take_over(second.client, owner) is None
        await becomes(first, "foreign-cluster")
        assert "claimed on desk" in (first.health().reason or "")
        ours.written.clear()
        await decided.node("w1")
        await second.decided.node("w9")
        async with writing(second.decided, second.database_url, second.client, SETTINGS) as other:
            await settled(other, second.decided)
        assert await names(ours) == ["w9-0", "w9-1"]
        assert ours.written == []


async def test_a_cluster_that_is_given_back_goes_to_who_is_left(
    ledger: JetStreamLedger, decided: Decided, database_url: str, ours: CountingClient, second: Second
) -> None:
    await take_over(ours, ClusterOwner("gone", "", ""))
    async with writing(decided, database_url, ours, SETTINGS) as writer:
        await becomes(writer, "foreign-cluster")
        assert ours.written == [f"POST {PATH}"]
        assert REGISTRY.get_sample_value("gpuledger_statuswriter_active") == 0, "an alert asks for it"
        await second.client.delete(CONFIG_MAPS, LEDGER_CONFIG_MAP, LEDGER_CONFIG_MAP_NAMESPACE)
        await settled(writer, decided)
        assert writer.health().reason is None
    assert await owner_in(ours) == ledger.identity.ledger_id


async def test_who_had_the_cluster_lets_others_claim_it_first(
    decided: Decided, database_url: str, ours: CountingClient, second: Second
) -> None:
    async with writing(decided, database_url, ours, SETTINGS) as writer:
        await settled(writer, decided)
        ours.written.clear()
        await second.client.delete(CONFIG_MAPS, LEDGER_CONFIG_MAP, LEDGER_CONFIG_MAP_NAMESPACE)
        await becomes(writer, "foreign-cluster")
        assert "belongs to no ledger yet" in (writer.health().reason or "")
        theirs = ClusterOwner(second.decided.ledger.identity.ledger_id, "", "")
        assert await claim(second.client, theirs, "c") == theirs
        assert ours.written == []


async def test_who_had_the_cluster_claims_it_again_if_nobody_else_does(
    decided: Decided, database_url: str, ours: CountingClient, client: KubeClient
) -> None:
    async with writing(decided, database_url, ours, replace(SETTINGS, reclaim_pause_s=0.2)) as writer:
        await settled(writer, decided)
        await client.delete(CONFIG_MAPS, LEDGER_CONFIG_MAP, LEDGER_CONFIG_MAP_NAMESPACE)
        await becomes(writer, "foreign-cluster")
        await settled(writer, decided)
    assert await owner_in(client) == decided.ledger.identity.ledger_id


async def test_of_two_that_claim_at_once_one_wins(client: KubeClient, ours: CountingClient, second: Second) -> None:
    both = [claim(one, ClusterOwner(name, "", ""), "c") for one, name in ((ours, "a"), (second.client, "b"))]
    found = await asyncio.gather(*both, return_exceptions=True)
    (winner,) = [one for one in found if isinstance(one, ClusterOwner)]
    (loser,) = [one for one in found if isinstance(one, ForeignClusterError)]
    assert await owner_in(client) == winner.ledger_id
    assert f"belongs to the ledger {winner.ledger_id}" in str(loser)


async def test_what_a_strange_ledger_left_behind_is_removed_by_the_owner_alone(
    decided: Decided, database_url: str, ours: CountingClient, second: Second
) -> None:
    await second.decided.node("w9")
    async with writing(second.decided, second.database_url, second.client, SETTINGS) as writer:
        await settled(writer, second.decided)
    with pytest.raises(ForeignClusterError):
        await remove_strange(ours, decided.ledger)
    await take_over(ours, ClusterOwner(decided.ledger.identity.ledger_id, "", ""))
    await decided.node("w1")
    async with writing(decided, database_url, ours, SETTINGS) as writer:
        await settled(writer, decided)
        assert await names(ours) == ["w1-0", "w1-1", "w9-0", "w9-1"]
        assert {key.name for key in await remove_strange(ours, decided.ledger)} == {"w9", "w9-0", "w9-1"}
        assert await names(ours) == ["w1-0", "w1-1"]
        assert (await compare(ours, decided.ledger)).differences == 0
        assert await remove_strange(ours, decided.ledger) == []


async def test_verify_repairs_on_request(decided: Decided, run: Run, client: KubeClient) -> None:
    await take_over(client, ClusterOwner(decided.ledger.identity.ledger_id, "", ""))
    await create(client, GPU_DEVICES, {"metadata": {"name": "strange"}})
    assert (await run("verify", "--repair")).code == 2
    assert (await run("verify", "--kube")).code == 1
    result = await run("verify", "--kube", "--repair")
    assert (result.code, "Removed GPUDevice strange, which the ledger does not have." in result.err) == (0, True)
    assert "Not compared in Kubernetes: NodeFeatureRule, ModuleConfig, DaemonSet.\n" in result.err
    assert await names(client) == []
