"""Slices, claims, classes, taint rules and labels on an API server: the ledger ends up true, whatever happens."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from gpuledger.api.kinds import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    OLDER_DEVICE_TAINT_RULES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.watchers.decide import AnyKind
from gpuledger.edge.watchers.resources import claims, deviceclasses, nodes, slices, taintrules
from gpuledger.events.envelope import decode
from gpuledger.ledger.jetstream import JetStreamLedger
from support.kube_proxy import KubeProxy
from support.kube_server import KubeServer
from support.ledgers import everything
from support.scripted_api import refuse
from support.waiting import eventually
from support.watching import comes_of, listed_again, lists, recorded_of, watching

KINDS = (nodes.LABELS_KIND, slices.KIND, claims.KIND, deviceclasses.KIND, taintrules.KIND)
LISTED = (slices.KIND, claims.KIND, deviceclasses.KIND)
"""Kinds that every server of the tests serves."""

DRIVER = "gpu.example.com"

Json = dict[str, Any]


@pytest.fixture
async def client(kube: KubeServer) -> AsyncIterator[KubeClient]:
    async with open_client(kube.kubeconfig) as client:
        yield client


recorded_lines, comes = partial(recorded_of, KINDS), partial(comes_of, KINDS)


async def put_slice(client: KubeClient, name: str, *devices: str, generation: int = 1) -> Json:
    pool = {"name": "p", "generation": generation, "resourceSliceCount": 1}
    offered = [{"name": one, "attributes": {"uuid": {"string": one}}} for one in devices]
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "w1", "devices": offered}
    return await client.apply(RESOURCE_SLICES, {"metadata": {"name": name}, "spec": spec})


async def put_claim(client: KubeClient, name: str) -> Json:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    metadata = {"name": name, "namespace": "default"}
    return await client.apply(RESOURCE_CLAIMS, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}})


async def set_status(client: KubeClient, name: str, status: Json) -> None:
    await client.merge_patch(RESOURCE_CLAIMS, name, {"status": status}, "default", subresource="status")


async def allocate(client: KubeClient, name: str, device: str) -> None:
    result = {"request": "r", "driver": DRIVER, "pool": "p", "device": device}
    await set_status(client, name, {"allocation": {"devices": {"results": [result]}}})


async def put_class(client: KubeClient, name: str, expression: str = "true") -> None:
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    await client.apply(DEVICE_CLASSES, {"metadata": {"name": name}, "spec": spec})


async def delete_claim(client: KubeClient, name: str) -> None:
    await client.delete(RESOURCE_CLAIMS, name, "default")


async def touch(client: KubeClient) -> None:
    """Change an object that nobody watches, so that all watched objects were last changed before now."""
    await client.apply(
        CONFIG_MAPS, {"metadata": {"name": "unrelated", "namespace": "default"}, "data": {"a": uuid4().hex}}
    )


async def test_slices_are_published_replaced_and_withdrawn(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_slice(client, "early", "gpu-0")
    async with watching(client, ledger, database_url):
        await comes(ledger, "slice early published")
        await put_slice(client, "late", "gpu-1")
        await put_slice(client, "late", "gpu-1", "gpu-2", generation=2)
        await client.merge_patch(RESOURCE_SLICES, "late", {"metadata": {"labels": {"unrelated": "x"}}})
        await client.delete(RESOURCE_SLICES, "early")
        await comes(
            ledger,
            "slice early published",
            "slice early withdrawn",
            *["slice late published"] * 2,
        )
    events = [decode(message.data).data for message in await everything(ledger)]
    late = [one for one in events if getattr(one, "pool_generation", 0) == 2]
    assert [device.name for device in late[0].devices] == ["gpu-1", "gpu-2"]  # type: ignore[attr-defined]


CLAIM = "claim default/c"


async def test_a_claim_from_its_beginning_to_its_end(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    async with watching(client, ledger, database_url):
        await put_claim(client, "c")
        await comes(ledger, f"{CLAIM} requested")
        await allocate(client, "c", "gpu-0")
        user = {"resource": "pods", "name": "p", "uid": "1"}
        await set_status(client, "c", {"reservedFor": [user]})
        await set_status(client, "c", {"reservedFor": None})
        await set_status(client, "c", {"allocation": None})
        await allocate(client, "c", "gpu-1")
        await delete_claim(client, "c")
        payloads = ["requested", "allocated", "requested", "allocated", "released"]
        await comes(ledger, *(f"{CLAIM} {one}" for one in payloads))


async def test_every_object_is_recorded_once_however_often_it_is_listed(
    kube: KubeServer, client: KubeClient, proxy: KubeProxy, ledger: JetStreamLedger, database_url: str
) -> None:
    await client.apply(NODES, {"metadata": {"name": "w1", "labels": {"team": "a"}}})
    await put_slice(client, "s", "gpu-0")
    await put_class(client, "gpu")
    await put_claim(client, "c")
    await allocate(client, "c", "gpu-0")
    first = ["node w1 labelled", "slice s published", "device-class gpu defined", f"{CLAIM} allocated"]
    for _ in range(2):
        async with open_client(proxy.kubeconfig) as theirs, watching(theirs, ledger, database_url):
            await comes(ledger, *first)
            before = [lists(kind) for kind in LISTED]
            await proxy.away()
            await touch(client)
            await kube.forget_history()
            await proxy.back()
            await listed_again(LISTED, before)
            await comes(ledger, *first)
            await put_claim(client, "d")
            await comes(ledger, *first, "claim default/d requested")
            await delete_claim(client, "d")
            first += ["claim default/d requested", "claim default/d released"]
            await comes(ledger, *first)


async def test_changes_that_nobody_watched_are_recorded_afterwards(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    for name in ("gone", "again"):
        await put_slice(client, name, f"of-{name}")
        await put_claim(client, name)
        await allocate(client, name, f"of-{name}")
        await put_class(client, name)
        await client.apply(NODES, {"metadata": {"name": name}})
    begins = {"slice": "published", "claim": "allocated", "device-class": "defined", "node": "labelled"}
    ends = {"slice": "withdrawn", "claim": "released", "device-class": "removed", "node": "unlabelled"}

    def words(name: str, payloads: dict[str, str]) -> list[str]:
        return [f"{one} {f'default/{name}' if one == 'claim' else name} {event}" for one, event in payloads.items()]

    first = [*words("gone", begins), *words("again", begins)]
    async with watching(client, ledger, database_url):
        await comes(ledger, *first)
    for name in ("gone", "again"):
        for resource in (RESOURCE_SLICES, DEVICE_CLASSES, NODES):
            await client.delete(resource, name)
        await delete_claim(client, name)
    await put_slice(client, "again", "of-again")
    await put_claim(client, "again")
    await put_class(client, "again")
    await client.apply(NODES, {"metadata": {"name": "again"}})
    async with watching(client, ledger, database_url):
        again = [*words("again", ends), *words("again", begins | {"claim": "requested"})]
        await comes(ledger, *first, *words("gone", ends), *again)


async def test_labels_of_nodes_are_followed_apart_from_the_nodes(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await client.apply(NODES, {"metadata": {"name": "w1"}})
    async with watching(client, ledger, database_url):
        await comes(ledger, "node w1 labelled")
        await comes_of([nodes.kind("")], ledger, "node w1 observed")
        for value in ("a", "b"):
            await client.merge_patch(NODES, "w1", {"metadata": {"labels": {"unrelated": value}}})
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        await client.merge_patch(NODES, "w1", {"status": status}, subresource="status")
        await client.delete(NODES, "w1")
        await comes(ledger, *["node w1 labelled"] * 3, "node w1 unlabelled")
        await comes_of([nodes.kind("")], ledger, "node w1 observed", "node w1 gone")


@pytest.mark.embedded_only("a real one does not serve DeviceTaintRules unless it is configured to")
@pytest.mark.parametrize("version", [DEVICE_TAINT_RULES, OLDER_DEVICE_TAINT_RULES])
async def test_taint_rules_of_either_version(
    version: Any, client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    spec: Json = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "broken", "effect": "NoExecute"}}
    async with watching(client, ledger, database_url):
        await client.create(version, {"metadata": {"name": "t"}, "spec": spec})
        await comes(ledger, "taint-rule t set")
        await client.merge_patch(version, "t", {"spec": {"taint": {"effect": "NoSchedule"}}})
        status = {"conditions": [condition("EvictionInProgress")]}
        await client.merge_patch(version, "t", {"status": status}, subresource="status")
        await client.delete(version, "t")
        await comes(ledger, *["taint-rule t set"] * 2, "taint-rule t lifted")


def condition(kind: str) -> Json:
    return {
        "type": kind,
        "status": "True",
        "reason": "Why",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


class Older(KubeProxy):
    """A server that does not serve some versions of groups, by its own word."""

    def __init__(self, server: KubeServer, directory: Path) -> None:
        super().__init__(server, directory)
        self.hidden: set[str] = set()
        self.refused: list[str] = []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/apis":
            return await self._groups()
        if any(f"{request.path}/".startswith(f"/apis/{version}/") for version in self.hidden):
            self.refused.append(request.path)
            return await refuse(404, "NotFound")(request)
        return await super()._answer(request)

    async def _groups(self) -> web.StreamResponse:
        async with self._upstream.get(f"{self._server.url}/apis") as answer:
            found = await answer.json()
        for group in found["groups"]:
            group["versions"] = [one for one in group["versions"] if one["groupVersion"] not in self.hidden]
        return web.json_response(found)


@pytest.fixture
async def older(kube: KubeServer, tmp_path: Path) -> AsyncIterator[Older]:
    proxy = Older(kube, tmp_path)
    try:
        await proxy.back()
        yield proxy
    finally:
        await proxy.away()


NEW, OLD = DEVICE_TAINT_RULES.api_version, OLDER_DEVICE_TAINT_RULES.api_version


async def test_a_server_without_dynamic_resource_allocation_is_no_trouble(
    client: KubeClient, older: Older, ledger: JetStreamLedger, database_url: str
) -> None:
    older.hidden = {RESOURCE_SLICES.api_version, NEW, OLD}
    await put_slice(client, "s", "gpu-0")
    await client.apply(NODES, {"metadata": {"name": "w1"}})
    errors = {kind.name: errors_of(kind) for kind in KINDS}
    async with open_client(older.kubeconfig) as theirs, watching(theirs, ledger, database_url):
        await comes(ledger, "node w1 labelled")
        await listed_twice(older, *(kind.resource for kind in KINDS if kind is not nodes.LABELS_KIND))
        assert {kind.name: errors_of(kind) for kind in KINDS} == errors
        older.hidden = {NEW, OLD}
        await comes(ledger, "node w1 labelled", "slice s published")


async def listed_twice(older: Older, *resources: Resource) -> None:
    """Return when each was requested again after a 404."""

    async def is_so() -> bool:
        return all(older.refused.count(resource.path()) > 1 for resource in resources)

    await eventually(is_so)


@pytest.mark.embedded_only("a real one does not serve DeviceTaintRules unless it is configured to")
async def test_taint_rules_are_followed_from_one_version_to_another(
    kube: KubeServer, client: KubeClient, older: Older, ledger: JetStreamLedger, database_url: str
) -> None:
    older.hidden = {NEW}
    spec: Json = {"taint": {"key": "broken", "effect": "NoExecute"}}
    await client.create(OLDER_DEVICE_TAINT_RULES, {"metadata": {"name": "t"}, "spec": spec})
    async with open_client(older.kubeconfig) as theirs, watching(theirs, ledger, database_url):
        await comes(ledger, "taint-rule t set")
        for hidden in (OLD, NEW):
            before = [lists(kind) for kind in LISTED]
            await older.away()
            await touch(client)
            await kube.forget_history()
            older.hidden = {hidden}
            await older.back()
            await listed_again(LISTED, before)
            assert [*(await recorded_lines(ledger))] == ["taint-rule t set"]
        await comes(ledger, "taint-rule t set")
        await client.delete(DEVICE_TAINT_RULES, "t")
        await comes(ledger, "taint-rule t set", "taint-rule t lifted")


def errors_of(kind: AnyKind) -> float:
    labels = {"watcher": kind.name, "error": "NotFoundError"}
    return REGISTRY.get_sample_value("gpuledger_watcher_errors_total", labels) or 0.0
