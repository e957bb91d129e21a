"""Pools, the pods that use them, namespaces and components on an API server: the ledger ends up true."""

from functools import partial
from typing import Any

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, CRDS, GPU_POOLS, NAMESPACES, PODS
from gpuledger.api.labels import ANNOTATION_MAINTENANCE, LABEL_ENABLED
from gpuledger.edge.kube.client import KubeClient, KubeRequest, open_client
from gpuledger.edge.watchers.resources import components, gpupools, namespaces, pods
from gpuledger.edge.watchers.resources.pod_progress import TERMINATING
from gpuledger.events.envelope import decode
from gpuledger.events.node import NodeComponentsObserved
from gpuledger.events.pod import PodObserved
from gpuledger.events.pool import LabelSelector, PoolDefined
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import JetStreamLedger
from support.kube_equipped import equip
from support.kube_fleet import create
from support.kube_proxy import KubeProxy
from support.kube_server import KubeServer
from support.ledgers import everything
from support.watching import comes_of, listed_again, lists, recorded_of, watching

KINDS = (components.kind("default"), gpupools.KIND, gpupools.CLUSTER_KIND, pods.KIND)
recorded_lines, comes = partial(recorded_of, KINDS), partial(comes_of, KINDS)
comes_of_namespaces = partial(comes_of, (namespaces.KIND,))

CRASHES = "CrashLoopBackOff"
RESOURCE = "gpu.deckhouse.io/p"
CARD = {"resource": {"unit": "Card"}}

Json = dict[str, Any]


async def put_pool(client: KubeClient, name: str = "p", spec: Json | None = None, **metadata: Any) -> None:
    metadata |= {"name": name, "namespace": "default"}
    await client.apply(GPU_POOLS, {"metadata": metadata, "spec": CARD | (spec or {})})


async def put_pod(
    client: KubeClient,
    name: str,
    app: str = "work",
    units: str | None = None,
    node: str | None = "w1",
    namespace: str = "default",
) -> None:
    """A pod that goes at once when it is deleted, but is seen terminating before."""
    resources = {"resources": {"limits": {RESOURCE: units}}} if units else {}
    spec: Json = {"containers": [{"name": "c", "image": "i"} | resources], "terminationGracePeriodSeconds": 0}
    spec |= {"nodeName": node} if node else {}
    metadata = {"name": name, "namespace": namespace, "labels": {"app": app}}
    await create(client, PODS, {"metadata": metadata, "spec": spec})


async def bind(client: KubeClient, name: str, node: str) -> None:
    path = f"{PODS.path('default')}/{name}/binding"
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    await client.send(KubeRequest(f"bind {name}", "POST", path, body=body))


async def set_status(client: KubeClient, name: str, status: Json) -> None:
    await client.merge_patch(PODS, name, {"status": status}, "default", subresource="status")


def ready(restarts: int = 0, *, is_ready: bool = True) -> Json:
    state: Json = {"running": {}} if is_ready else {"waiting": {"reason": CRASHES, "message": f"{restarts}s"}}
    container = {"name": "c", "ready": is_ready, "image": "i", "imageID": "i", "restartCount": restarts, "state": state}
    condition = {"type": "Ready", "status": "True" if is_ready else "False"}
    return {"phase": "Running", "conditions": [condition], "containerStatuses": [container]}


async def payloads(ledger: Ledger, kind: type[Any]) -> list[Any]:
    found = [decode(message.data).data for message in await everything(ledger)]
    return [one for one in found if isinstance(one, kind)]


async def test_pools_are_defined_changed_and_gone(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_pool(client, "early")
    async with watching(client, ledger, database_url):
        await comes(ledger, "pool default/early defined")
        await client.apply(CLUSTER_GPU_POOLS, {"metadata": {"name": "whole"}, "spec": CARD})
        await put_pool(client, "early", {"nodeSelector": {"matchLabels": {"team": "a"}}})
        status = {"status": {"capacity": {"total": 3}}}
        await client.merge_patch(GPU_POOLS, "early", status, "default", subresource="status")
        annotations = {"annotations": {ANNOTATION_MAINTENANCE: "enabled"}}
        await client.merge_patch(GPU_POOLS, "early", {"metadata": annotations}, "default")
        await client.delete(GPU_POOLS, "early", "default")
        early = [*["pool default/early defined"] * 3, "pool default/early gone"]
        await comes(ledger, *early, "pool whole defined")
    last = [one for one in await payloads(ledger, PoolDefined) if one.maintenance]
    assert [one.node_selector for one in last] == [LabelSelector(labels={"team": "a"})]


async def test_a_pool_that_holds_something_still_is_being_deleted(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_pool(client, finalizers=["gpu.deckhouse.io/pool"])
    defined = "pool default/p defined"
    async with watching(client, ledger, database_url):
        await comes(ledger, defined)
        await client.delete(GPU_POOLS, "p", "default")
        await comes(ledger, defined, defined)
        await client.merge_patch(GPU_POOLS, "p", {"metadata": {"finalizers": None}}, "default")
        await comes(ledger, defined, defined, "pool default/p gone")
    assert [one.deleting for one in await payloads(ledger, PoolDefined)] == [False, True]


async def test_pods_that_ask_for_pools_are_observed_until_they_end(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_pod(client, "other")
    await put_pod(client, "p", units="2", node=None)
    async with watching(client, ledger, database_url):
        await comes(ledger, "pod default/p observed")
        await bind(client, "p", "w1")
        await comes(ledger, *["pod default/p observed"] * 2)
        await set_status(client, "p", ready())
        await set_status(client, "p", {"phase": "Succeeded"})
        await put_pod(client, "q", units="1")
        await comes(ledger, *["pod default/p observed"] * 2, "pod default/p gone", "pod default/q observed")
    nodes = [(one.node, one.requests) for one in await payloads(ledger, PodObserved)]
    assert nodes == [(None, {RESOURCE: 2}), ("w1", {RESOURCE: 2}), ("w1", {RESOURCE: 1})]


async def test_components_of_a_node_and_nothing_else_of_it(
    client: KubeClient, proxy: KubeProxy, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_pod(client, "work")
    await put_pod(client, "validator", "nvidia-operator-validator")
    await client.apply(NAMESPACES, {"metadata": {"name": "elsewhere"}})
    await put_pod(client, "pretender", "nvidia-dcgm", namespace="elsewhere")
    observed = "node w1 components-observed"
    async with open_client(proxy.kubeconfig) as theirs, watching(theirs, ledger, database_url):
        await comes(ledger, observed)
        await put_pod(client, "exporter", "nvidia-dcgm-exporter")
        await comes(ledger, *[observed] * 2)
        await set_status(client, "exporter", ready())
        await comes(ledger, *[observed] * 3)
        for restarts in (1, 2, 3):
            await set_status(client, "exporter", ready(restarts, is_ready=False))
        await comes(ledger, *[observed] * 4)
        await client.delete(PODS, "exporter", "default")
        await client.delete(PODS, "validator", "default")
        await comes(ledger, *[observed] * 8)
    seen = await payloads(ledger, NodeComponentsObserved)
    progress = [[(pod.component, pod.ready, pod.failing) for pod in one.pods] for one in seen]
    validator = ("validator", False, False)
    assert progress == [
        [validator],
        [("dcgm-exporter", False, False), validator],
        [("dcgm-exporter", True, False), validator],
        [("dcgm-exporter", False, True), validator],
        [("dcgm-exporter", False, False), validator],
        [validator],
        [validator],
        [],
    ]
    assert [pod.reason for one in seen for pod in one.pods if pod.reason] == [CRASHES, TERMINATING, TERMINATING]
    assert any(one.path == PODS.path("default") for one in proxy.requests), "the pods of one namespace are read"


async def test_every_object_is_recorded_once_however_often_it_is_listed(
    kube: KubeServer, client: KubeClient, proxy: KubeProxy, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_pool(client)
    await client.apply(CLUSTER_GPU_POOLS, {"metadata": {"name": "whole"}, "spec": CARD})
    await put_pod(client, "p", units="1")
    await put_pod(client, "v", "nvidia-operator-validator")
    first = ["pool default/p defined", "pool whole defined", "pod default/p observed", "node w1 components-observed"]
    for _ in range(2):
        async with open_client(proxy.kubeconfig) as theirs, watching(theirs, ledger, database_url):
            await comes(ledger, *first)
            before = [lists(kind) for kind in KINDS]
            await proxy.away()
            await client.apply(NAMESPACES, {"metadata": {"name": f"n{len(first)}"}})
            await kube.forget_history()
            await proxy.back()
            await listed_again(KINDS, before)
            await comes(ledger, *first)
            await put_pod(client, "late", units="1")
            first.append("pod default/late observed")
            await comes(ledger, *first)
            await client.delete(PODS, "late", "default")
            first.append("pod default/late gone")
            await comes(ledger, *first)


async def test_changes_that_nobody_watched_are_recorded_afterwards(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    for name in ("gone", "again"):
        await put_pool(client, name)
        await put_pod(client, name, "nvidia-dcgm", units="1", node=name)
    begins = {"pool": "defined", "pod": "observed"}
    ends = {"pool": "gone", "pod": "gone"}

    def lines(name: str, events: dict[str, str]) -> list[str]:
        return [f"{one} default/{name} {event}" for one, event in events.items()]

    nodes = [f"node {name} components-observed" for name in ("gone", "again")]
    first = [*lines("gone", begins), *lines("again", begins), *nodes]
    async with watching(client, ledger, database_url):
        await comes(ledger, *first)
    for name in ("gone", "again"):
        await client.delete(GPU_POOLS, name, "default")
        await client.delete(PODS, name, "default")
    await put_pool(client, "again")
    await put_pod(client, "again", "nvidia-dcgm", units="1", node="again")
    async with watching(client, ledger, database_url):
        again = [*lines("again", ends), *lines("again", begins)]
        await comes(ledger, *first, *lines("gone", ends), nodes[0], *again)


async def test_pools_that_are_not_installed_are_waited_for(
    kube: KubeServer, ledger: JetStreamLedger, database_url: str
) -> None:
    async with open_client(kube.kubeconfig) as client, watching(client, ledger, database_url):
        await put_pod(client, "p", units="1")
        await comes(ledger, "pod default/p observed")
        await equip(kube, client)
        await put_pool(client)
        await comes(ledger, "pod default/p observed", "pool default/p defined")
        await client.delete(CRDS, GPU_POOLS.full_name)
        await comes(ledger, "pod default/p observed", "pool default/p defined", "pool default/p gone")


async def test_namespaces_and_whether_they_may_use_gpus(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await client.apply(NAMESPACES, {"metadata": {"name": "team"}})
    there = [f"namespace {one['metadata']['name']} observed" for one in (await client.list(NAMESPACES)).items]
    async with watching(client, ledger, database_url):
        await comes_of_namespaces(ledger, *there)
        await client.merge_patch(NAMESPACES, "team", {"metadata": {"labels": {"unrelated": "x"}}})
        await client.merge_patch(NAMESPACES, "team", {"metadata": {"labels": {LABEL_ENABLED: "true"}}})
        await comes_of_namespaces(ledger, *there, "namespace team observed")
    async with watching(client, ledger, database_url):
        await client.apply(NAMESPACES, {"metadata": {"name": "late", "labels": {LABEL_ENABLED: "true"}}})
        await comes_of_namespaces(ledger, *there, "namespace team observed", "namespace late observed")
