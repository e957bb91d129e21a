"""The watchers on a working API server, a real ledger and a real lock: whatever happens, the ledger ends up true."""

import asyncio
from typing import Any

import psycopg
from prometheus_client import REGISTRY

from gpuledger.api.kinds import CRDS, GPU_DEVICES, MODULE_CONFIG, MODULE_CONFIGS, NODE_FEATURES, NODES
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, LABEL_IGNORE, LABEL_PRODUCT
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.watchers.resources import namespaces, nodemachines, nodes
from gpuledger.events.envelope import decode
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import PostgresServer
from support.kube_equipped import equip
from support.kube_proxy import KubeProxy
from support.kube_server import KubeServer, NewKube
from support.ledgers import everything, jetstream_ledger
from support.waiting import eventually
from support.watching import watching

WITH_TESTS_OF_THEIR_OWN = frozenset({nodes.LABELS_KIND.source, namespaces.KIND.source, nodemachines.KIND.source})
"""They record something of every server."""

DEFAULTS = "settings gpu-control-plane changed"
PRODUCT = "nvidia.com/gpu.product"


async def recorded_lines(ledger: Ledger, source: str | None = None) -> list[str]:
    """The recorded events as lines, of one source or of all but those that every test would have to list."""
    events = [decode(message.data) for message in await everything(ledger)]
    found = [one for one in events if one.source not in WITH_TESTS_OF_THEIR_OWN]
    return [f"{one.data.AGGREGATE} {one.subject} {one.data.EVENT}" for one in found if source in (None, one.source)]


async def comes(ledger: Ledger, *words: str, source: str | None = None) -> None:
    """Return when exactly this was recorded, in any order of kinds."""

    async def is_recorded() -> bool:
        return sorted(await recorded_lines(ledger, source)) == sorted(words)

    try:
        await eventually(is_recorded)
    except TimeoutError:
        assert sorted(await recorded_lines(ledger, source)) == sorted(words)


async def numbers(ledger: Ledger) -> dict[str, list[int]]:
    """Every source's numbers, in the order of the ledger; an epoch each."""
    events = [decode(message.data) for message in await everything(ledger)]
    assert len({one.source for one in events}) == len({(one.source, one.epoch) for one in events})
    found: dict[str, list[int]] = {}
    for one in events:
        found.setdefault(one.source, []).append(one.number)
    return found


async def numbered_without_gaps(ledger: Ledger) -> bool:
    return all(given == list(range(1, len(given) + 1)) for given in (await numbers(ledger)).values())


async def put_node(client: KubeClient, name: str, **labels: str) -> None:
    await client.apply(NODES, {"metadata": {"name": name, "labels": labels}})


async def label(client: KubeClient, name: str, key: str, value: str | None) -> None:
    await client.merge_patch(NODES, name, {"metadata": {"labels": {key: value}}})


async def put_feature(client: KubeClient, name: str) -> None:
    instances = {"pci.device": {"elements": [{"attributes": {"vendor": "10de", "class": "0302", "device": "20b0"}}]}}
    labels = {"nfd.node.kubernetes.io/node-name": name}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    await client.apply(NODE_FEATURES, {"metadata": metadata, "spec": {"features": {"instances": instances}}})


async def put_settings(client: KubeClient, settings: dict[str, Any]) -> None:
    await client.apply(MODULE_CONFIGS, {"metadata": {"name": MODULE_CONFIG}, "spec": {"settings": settings}})


async def mark(client: KubeClient, name: str, **metadata: dict[str, str]) -> None:
    body = {"metadata": {"name": name, **metadata}, "spec": {}}
    await client.apply(GPU_DEVICES, body, field_manager="kubectl")


async def test_every_object_is_recorded_once(client: KubeClient, ledger: JetStreamLedger, database_url: str) -> None:
    await put_node(client, "w1", **{PRODUCT: "a"})
    await put_node(client, "w2")
    await put_feature(client, "w1")
    await put_settings(client, {"inventory": {"resyncPeriod": "1m"}})
    await mark(client, "d0", labels={LABEL_IGNORE: "true"}, annotations={ANNOTATION_ASSIGNMENT: "pool"})
    await mark(client, "d1", labels={LABEL_PRODUCT: "a100"})
    first = [
        "node w1 observed", "node w2 observed", "node w1 features-observed", DEFAULTS, "device d0 marked",
    ]  # fmt: skip
    for _ in range(3):
        async with watching(client, ledger, database_url):
            await comes(ledger, *first)
    async with watching(client, ledger, database_url):
        await put_node(client, "w3")
        await mark(client, "d1", labels={LABEL_PRODUCT: "a100", "team": "x"})
        await comes(ledger, *first, "node w3 observed", "device d1 marked")
    assert await numbered_without_gaps(ledger)


async def test_changes_are_recorded_in_their_order(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    async with watching(client, ledger, database_url):
        await put_node(client, "w1")
        await comes(ledger, DEFAULTS, "node w1 observed")
        for product in "abab":
            await label(client, "w1", PRODUCT, product)
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        await client.merge_patch(NODES, "w1", {"status": status}, subresource="status")
        await label(client, "w1", "unrelated", "x")
        await client.delete(NODES, "w1")
        await put_node(client, "w1", **{PRODUCT: "c"})
        await comes(ledger, *["node w1 observed"] * 5, "node w1 gone", "node w1 observed", source="/watchers/nodes")
    events = [decode(message.data) for message in await everything(ledger)]
    observed = [one.data for one in events if (one.subject, one.source) == ("w1", "/watchers/nodes")]
    labels = [getattr(one, "labels", {}).get(PRODUCT, "-") for one in observed]
    assert "".join(labels) == "-abab-c"


async def test_changes_that_nobody_watched_are_recorded_afterwards(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    for name in ("w1", "w2", "w3"):
        await put_node(client, name)
        await put_feature(client, name)
        await mark(client, name, labels={"a": "b"})
    async with watching(client, ledger, database_url):
        first = [f"node {name} {what}" for name in ("w1", "w2", "w3") for what in ("observed", "features-observed")]
        first += [f"device {name} marked" for name in ("w1", "w2", "w3")] + [DEFAULTS]
        await comes(ledger, *first)
    await client.delete(NODES, "w1")
    await client.delete(NODES, "w2")
    await put_node(client, "w2")
    await client.delete(NODE_FEATURES, "w1", "default")
    await client.delete(GPU_DEVICES, "w1")
    await mark(client, "w2")
    await put_settings(client, {"inventory": {"resyncPeriod": "1m"}})
    async with watching(client, ledger, database_url):
        missed = ["node w1 gone", "node w2 gone", "node w2 observed", "node w1 features-gone"]
        missed += ["device w1 marked", "device w2 marked", DEFAULTS]
        await comes(ledger, *first, *missed)
    assert await numbered_without_gaps(ledger)


async def test_kinds_that_are_not_installed_are_waited_for(
    kube: KubeServer, ledger: JetStreamLedger, database_url: str
) -> None:
    async with open_client(kube.kubeconfig) as client, watching(client, ledger, database_url):
        await put_node(client, "w1")
        await comes(ledger, DEFAULTS, "node w1 observed")
        await equip(kube, client)
        await put_feature(client, "w1")
        await put_settings(client, {"highAvailability": True})
        await mark(client, "d0", labels={"a": "b"})
        so_far = [DEFAULTS, "node w1 observed", "node w1 features-observed", DEFAULTS, "device d0 marked"]
        await comes(ledger, *so_far)
        await client.delete(CRDS, NODE_FEATURES.full_name)
        await client.delete(CRDS, MODULE_CONFIGS.full_name)
        await comes(ledger, *so_far, "node w1 features-gone", DEFAULTS)


async def test_another_label_of_management_has_the_nodes_read_again(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_node(client, "w1", **{"example.com/gpu": "false"})
    await put_node(client, "w2")
    async with watching(client, ledger, database_url):
        first = ["node w1 observed", "node w2 observed", DEFAULTS]
        await comes(ledger, *first)
        await put_settings(client, {"managedNodes": {"labelKey": "example.com/gpu"}})
        await comes(ledger, *first, DEFAULTS, "node w1 observed")
    async with watching(client, ledger, database_url):
        await put_node(client, "w2", **{"example.com/gpu": "true"})
        await comes(ledger, *first, DEFAULTS, "node w1 observed", "node w2 observed")


async def test_a_server_that_was_away_loses_and_repeats_nothing(
    kube: KubeServer, client: KubeClient, proxy: KubeProxy, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_node(client, "w1")
    await put_node(client, "w2")
    async with open_client(proxy.kubeconfig) as theirs, watching(theirs, ledger, database_url):
        first = [DEFAULTS, "node w1 observed", "node w2 observed"]
        await comes(ledger, *first)
        await proxy.away()
        await failures("nodes")
        await client.delete(NODES, "w1")
        await put_node(client, "w3")
        await kube.forget_history()
        await proxy.back()
        await comes(ledger, *first, "node w1 gone", "node w3 observed")
        await put_node(client, "w4")
        await comes(ledger, *first, "node w1 gone", "node w3 observed", "node w4 observed")


async def test_a_server_that_comes_back_as_another_is_believed(
    kube: KubeServer, proxy: KubeProxy, new_kube: NewKube, ledger: JetStreamLedger, database_url: str
) -> None:
    async with open_client(kube.kubeconfig) as client:
        for name in ("w1", "w2"):
            await put_node(client, name)
    async with open_client(proxy.kubeconfig) as theirs, watching(theirs, ledger, database_url):
        first = [DEFAULTS, "node w1 observed", "node w2 observed"]
        await comes(ledger, *first)
        await proxy.away()
        another = await new_kube()
        async with open_client(another.kubeconfig) as client:
            await put_node(client, "w2")
        await proxy.lead_to(another)
        await comes(ledger, *first, "node w1 gone", "node w2 gone", "node w2 observed")


async def failures(watcher: str) -> None:
    """Return when the watcher has noticed that the server is away."""
    before = _errors(watcher)

    async def noticed() -> bool:
        return _errors(watcher) > before

    await eventually(noticed)


def _errors(watcher: str) -> float:
    labels = {"watcher": watcher, "error": "UnavailableError"}
    return REGISTRY.get_sample_value("gpuledger_watcher_errors_total", labels) or 0.0


async def test_a_ledger_that_was_away_gets_everything(
    client: KubeClient, fresh_nats: NatsServer, database_url: str
) -> None:
    async with (
        jetstream_ledger(fresh_nats.url, publish_timeout_s=1.0, restore_timeout_s=1.0) as ledger,
        watching(client, ledger, database_url),
    ):
        await put_node(client, "w1")
        await put_node(client, "w2")
        await comes(ledger, DEFAULTS, "node w1 observed", "node w2 observed")
        await asyncio.to_thread(fresh_nats.kill)
        await put_node(client, "w3")
        await client.delete(NODES, "w1")
        await asyncio.to_thread(fresh_nats.start)
        await comes(ledger, DEFAULTS, "node w1 observed", "node w2 observed", "node w3 observed", "node w1 gone")
        assert await numbered_without_gaps(ledger)


async def test_one_instance_records_and_another_takes_over(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_node(client, "w1")
    async with watching(client, ledger, database_url), watching(client, ledger, database_url):
        first = [DEFAULTS, "node w1 observed"]
        await comes(ledger, *first)
        for round_ in range(3):
            await eventually(lambda: is_held_once(database_url))
            await end_holder(database_url)
            await put_node(client, f"n{round_}")
            first.append(f"node n{round_} observed")
            await comes(ledger, *first)
    assert await numbered_without_gaps(ledger)


async def test_a_lost_lock_stops_recording_until_it_is_back(
    client: KubeClient, ledger: JetStreamLedger, fresh_postgres: PostgresServer
) -> None:
    async with watching(client, ledger, fresh_postgres.url):
        await comes(ledger, DEFAULTS)
        await asyncio.to_thread(fresh_postgres.kill)
        await eventually(inactive)
        await put_node(client, "w1")
        assert await recorded_lines(ledger) == [DEFAULTS]
        await asyncio.to_thread(fresh_postgres.start)
        await comes(ledger, DEFAULTS, "node w1 observed")


async def inactive() -> bool:
    return REGISTRY.get_sample_value("gpuledger_watchers_active") == 0


async def is_held_once(database_url: str) -> bool:
    """Whether one instance holds the lock; for a moment after its holder ended, none does."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        cursor = await connection.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE locktype = 'advisory' AND granted AND datname = current_database()"
        )
        row = await cursor.fetchone()
    return row == (1,)


async def end_holder(database_url: str) -> None:
    """End the connection that holds the lock."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE locktype = 'advisory' AND granted AND datname = current_database()"
        )
