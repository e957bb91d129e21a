"""What the services ask of an API server, held against the roles that the Helm chart gives them: real helm, real `up`.

The roles are proved both ways: whatever is asked is allowed, and nothing is allowed that nothing asked needs.
"""

import asyncio
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.conditions import PREREQUISITE_NOT_MET
from gpuledger.api.kinds import (
    CA_SECRET,
    CLUSTER_GPU_POOLS,
    CONTROLLER_TLS_SECRET,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    GPU_DEVICES,
    GPU_NODE_STATES,
    GPU_POOLS,
    JOBS,
    MACHINE_CONFIG_POOLS,
    MACHINE_CONFIGS,
    MODULE_CONFIG,
    MODULE_CONFIGS,
    NODE_FEATURES,
    NODES,
    PODS,
    RENDERED_MACHINE_CONFIGS,
    RESOURCE_SLICE_STATUSES,
    RESOURCE_SLICES,
    SECRETS,
    Resource,
    shared_devices,
)
from gpuledger.api.labels import LABEL_DETECTED, POOL_FINALIZER
from gpuledger.api.sharing import SHARING_ENABLED, SharingNames
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import NotFoundError
from support.chart import NAME, NAMESPACE, WITH_SECRET, Object, needs_helm, render
from support.chart_cluster import Cluster, serving
from support.draining import BUDGETS
from support.kube_accounts import Permission, config_file
from support.kube_fleet import create, label_like_nfd
from support.rights import beyond, granted, unused
from support.up import COMMAND, DEADLINE_S
from support.waiting import eventually

pytestmark = needs_helm

NODE = "w1"
KEPT = (GPU_DEVICES, GPU_NODE_STATES, RESOURCE_SLICE_STATUSES)
"""The kinds whose objects come and go with the nodes."""

POOLS: dict[Resource, dict[str, str]] = {GPU_POOLS: {"namespace": NAMESPACE}, CLUSTER_GPU_POOLS: {}}
"""The kinds of pools, with where an object of theirs lies."""

RENEWED = {Permission("update", "", "secrets", name, NAMESPACE) for name in (CA_SECRET, CONTROLLER_TLS_SECRET)}
STARTED = {Permission(verb, JOBS.group, JOBS.plural, "", NAMESPACE) for verb in ("list", "patch")}
PARTS = ("components", "admission", "ledger", "scaling", "coverage")
"""The roles that the services have beside the one of their name."""

SHOWN = {Permission("patch", "", "nodes/status")}

SELDOM = (
    {Permission("delete", RESOURCE_SLICE_STATUSES.group, RESOURCE_SLICE_STATUSES.plural)} | RENEWED | STARTED | SHOWN
)
"""What is needed and may not be asked here: a ResourceSliceStatus mostly goes with its slice, before it is deleted,
certificates are renewed months later, a Job is started after minutes (test_coverage_jobs.py), and only a node with an
agent shows what it shares (test_sharing_nodes.py)."""


@pytest.mark.long
async def test_the_services_need_just_the_rights_of_their_roles(cluster: Cluster, values: dict[str, Any]) -> None:
    """Agents are on all nodes, so that the services label those with GPUs."""
    values |= {"agent": {"enabled": True, "nodes": "all", "nats": {"url": "nats://agents.example:4222"}}}
    assert (await cluster.helm("install", values)).code == 0
    environ = await cluster.pod_environment()
    await create(cluster.client, MODULE_CONFIGS, {"metadata": {"name": MODULE_CONFIG}, "spec": {"enabled": True}})
    async with serving(environ):
        await eventually(cluster.has_webhooks)
        await _live(cluster.client)
        await _set_aside(cluster.client, environ)
    await _differ(cluster.client)
    verified = await asyncio.to_thread(
        subprocess.run, (*COMMAND, "verify", "--kube"), env=environ, capture_output=True, timeout=DEADLINE_S
    )
    assert (verified.returncode, b"ClusterGPUPool/" in verified.stdout) == (1, True), verified
    requested, rules = (
        cluster.requested_by(NAME),
        granted(render(values), NAME, *(f"{NAME}-{one}" for one in PARTS)),
    )
    assert (beyond(requested, rules), unused(requested | SELDOM, rules)) == (set(), set())
    assert cluster.server.refused == []


@pytest.mark.long
async def test_disabled_parts_request_nothing(cluster: Cluster, values: dict[str, Any]) -> None:
    """Without components and webhooks of ours there are no roles for them, and nothing may need one."""
    values |= {"components": {"manage": False, "namespace": "gpu-operator"}, "admission": {"enabled": False}}
    assert (await cluster.helm("install", values)).code == 0
    await create(cluster.client, MODULE_CONFIGS, {"metadata": {"name": MODULE_CONFIG}, "spec": {"enabled": True}})
    async with serving(await cluster.pod_environment()):
        await create(cluster.client, NODES, {"metadata": {"name": "bare"}})
        await eventually(partial(_reports_a_missing_prerequisite, cluster.client))
        await label_like_nfd(cluster.client, NODE)
        await eventually(partial(_have_a_status, cluster.client, GPU_DEVICES, 1))
        await _make_and_leave_a_pool(cluster.client)
    requested, made = cluster.requested_by(NAME), render(values)
    assert made.names("Role") == {f"{NAME}-{one}" for one in ("ledger", "scaling", "coverage", "uninstall")}
    assert beyond(requested, granted(made, NAME, f"{NAME}-ledger")) == set()
    assert cluster.server.refused == []


async def _live(client: KubeClient) -> None:
    """Everything that leads the services to a request: nodes come and go, and people meddle."""
    await create(client, NODES, {"metadata": {"name": "bare"}})
    await eventually(partial(_reports_a_missing_prerequisite, client))
    for node in (NODE, "w2"):
        await label_like_nfd(client, node)
        await create(client, RESOURCE_SLICES, _slice(node))
    for resource, namespace in POOLS.items():
        metadata = {"name": resource.plural, **namespace}
        await create(client, resource, {"metadata": metadata, "spec": {"resource": {"unit": "Card"}}})
    for resource in KEPT:
        await eventually(partial(_have_a_status, client, resource, 2))
    for resource in POOLS:
        await eventually(partial(_have_a_status, client, resource, 1))
    await _make_and_leave_a_pool(client)
    await eventually(partial(_are_components, client, 4))
    await eventually(partial(_are_labelled, client, {NODE, "w2"}))
    await _share_and_stop(client)
    await _configure_and_stop(client)
    await eventually(partial(_is_counted_after_meddling, client))
    off = {"bootstrap": {name: {"enabled": False} for name in ("validator", "gfd", "dcgm", "dcgmExporter")}}
    await client.merge_patch(MODULE_CONFIGS, MODULE_CONFIG, {"spec": {"settings": off | {"highAvailability": False}}})
    await eventually(partial(_are_components, client, 0))
    await eventually(partial(_is_one_pod, client))
    await client.delete(NODE_FEATURES, "w2", "default")
    await client.delete(NODES, "w2")
    await client.delete(RESOURCE_SLICES, "w2")
    for resource in KEPT:
        await eventually(partial(_have_a_status, client, resource, 1))


async def _share_and_stop(client: KubeClient) -> None:
    """A node shares its cards for a while."""
    sharing = {"metadata": {"labels": {SharingNames().sharing: SHARING_ENABLED}}}
    await client.merge_patch(NODES, NODE, sharing)
    await eventually(partial(_are_there, client, {NODE}))
    await client.merge_patch(NODES, NODE, {"metadata": {"labels": {SharingNames().sharing: None}}})
    await eventually(partial(_are_there, client, set()))


async def _configure_and_stop(client: KubeClient) -> None:
    """Two pools have a configuration rendered; one goes, and what was rendered for it."""
    labels = {"team": "ml"}
    selector = {"matchLabels": labels}
    config = {"files": [{"path": "/etc/motd", "content": "Welcome."}]}
    await create(client, MACHINE_CONFIGS, {"metadata": {"name": "motd", "labels": labels}, "spec": config})
    rollout: Object = {"rollout": {"debounceSeconds": 0}, "nodeSelector": selector, "machineConfigSelector": selector}
    for name in ("going", "staying"):
        await create(client, MACHINE_CONFIG_POOLS, {"metadata": {"name": name}, "spec": rollout})
    await eventually(partial(_are_rendered_for, client, {"going", "staying"}))
    await eventually(partial(_have_a_status, client, MACHINE_CONFIG_POOLS, 2))
    await client.delete(MACHINE_CONFIG_POOLS, "going")
    await eventually(partial(_are_rendered_for, client, {"staying"}))


async def _are_rendered_for(client: KubeClient, pools: set[str]) -> bool:
    return {one["spec"]["poolName"] for one in (await client.list(RENDERED_MACHINE_CONFIGS)).items} == pools


async def _are_there(client: KubeClient, names: set[str]) -> bool:
    return {one["metadata"]["name"] for one in (await client.list(shared_devices())).items} == names


async def _set_aside(client: KubeClient, environ: dict[str, str]) -> None:
    """Somebody sets a node aside and has its pods leave, also one whose budget never lets it go."""
    for name in ("leaving", "kept"):
        await _run_pod(client, name)
    kept = {"minAvailable": 1, "selector": {"matchLabels": {"name": "kept"}}}
    await create(client, BUDGETS, {"metadata": {"name": "kept", "namespace": "default"}, "spec": kept})
    mode = ("--mode", "DeleteAfterTimeout", "--timeout", "1s")
    command = (*COMMAND, "node", "drain", NODE, "--reason", "fan", *mode, "--no-wait")
    done = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done

    async def is_cordoned() -> bool:
        return bool((await client.get(NODES, NODE))["spec"].get("unschedulable"))

    await eventually(is_cordoned)
    await eventually(partial(_have_left, client))


async def _run_pod(client: KubeClient, name: str) -> None:
    """A pod that runs on the node, and is Ready, as budgets count."""
    spec = {"nodeName": NODE, "containers": [{"name": "main", "image": "i"}], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "namespace": "default", "labels": {"name": name}}
    await create(client, PODS, {"metadata": metadata, "spec": spec})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.merge_patch(PODS, name, {"status": ready}, "default", subresource="status")


async def _have_left(client: KubeClient) -> bool:
    return not {one["metadata"]["name"] for one in (await client.list(PODS)).items} & {"leaving", "kept"}


async def _make_and_leave_a_pool(client: KubeClient) -> None:
    """It goes once the services let go of it."""
    metadata = {"name": "going", "namespace": NAMESPACE}
    await create(client, GPU_POOLS, {"metadata": metadata, "spec": {"resource": {"unit": "Card"}}})
    await eventually(partial(_is_held, client))
    await client.delete(GPU_POOLS, "going", NAMESPACE)
    await eventually(partial(_is_gone, client))


async def _is_held(client: KubeClient) -> bool:
    return POOL_FINALIZER in ((await client.get(GPU_POOLS, "going", NAMESPACE))["metadata"].get("finalizers") or ())


async def _is_gone(client: KubeClient) -> bool:
    return "going" not in {one["metadata"]["name"] for one in (await client.list(GPU_POOLS)).items}


def _slice(node: str) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": node, "devices": [{"name": "gpu-0"}]}
    return {"metadata": {"name": node}, "spec": spec}


async def _reports_a_missing_prerequisite(client: KubeClient) -> bool:
    status = (await client.get(MODULE_CONFIGS, MODULE_CONFIG)).get("status") or {}
    return any(one["type"] == PREREQUISITE_NOT_MET for one in status.get("conditions") or ())


async def _are_components(client: KubeClient, number: int) -> bool:
    """Whether there are so many DaemonSets beside that of the agents, which is Helm's."""
    names = {one["metadata"]["name"] for one in (await client.list(DAEMON_SETS)).items}
    return len(names - {"gpu-node-agent"}) == number


async def _is_one_pod(client: KubeClient) -> bool:
    """Whether the services scaled the Deployment of which the chart makes two pods."""
    return bool((await client.get(DEPLOYMENTS, NAME, NAMESPACE))["spec"]["replicas"] == 1)


async def _are_labelled(client: KubeClient, nodes: set[str]) -> bool:
    found = (await client.list(NODES)).items
    return {
        one["metadata"]["name"] for one in found if LABEL_DETECTED in (one["metadata"].get("labels") or {})
    } == nodes


async def _have_a_status(client: KubeClient, resource: Resource, number: int) -> bool:
    found = (await client.list(resource)).items
    return len(found) == number and all("status" in one for one in found)


async def _is_counted_after_meddling(client: KubeClient) -> bool:
    """Change a status that is as it should be; the second time makes a series of what is told of it."""
    device = (await client.list(GPU_DEVICES)).items[0]
    if device["status"].get("state") != "Faulted":
        await _spoil(client, GPU_DEVICES, device["metadata"]["name"], {"state": "Faulted"})
    return any("series" in one for one in (await client.list(EVENTS)).items)


async def _spoil(client: KubeClient, resource: Resource, name: str, status: Object) -> None:
    namespace = POOLS.get(resource, {}).get("namespace")
    try:
        await client.merge_patch(resource, name, {"status": status}, namespace, subresource="status")
    except NotFoundError:
        return


async def _differ(client: KubeClient) -> None:
    """One object of each kind is not as the ledger says."""
    none: Object = {"conditions": []}
    statuses: tuple[Object, ...] = ({"state": "Faulted"}, none, {"devices": []}, none, none)
    for resource, status in zip((*KEPT, *POOLS), statuses, strict=True):
        for obj in (await client.list(resource)).items:
            await _spoil(client, resource, obj["metadata"]["name"], status)
    await _spoil(client, MACHINE_CONFIG_POOLS, "staying", {"machineCount": 9})
    for obj in (await client.list(RENDERED_MACHINE_CONFIGS)).items:
        policy: Object = {"spec": {"reboot": {"minIntervalSeconds": 1}}}
        await client.merge_patch(RENDERED_MACHINE_CONFIGS, obj["metadata"]["name"], policy)
    await create(client, shared_devices(), {"metadata": {"name": "strange"}, "spec": {"devices": []}})


async def test_a_right_that_is_missing_is_noticed(cluster: Cluster, tmp_path: Path) -> None:
    """The proof above is none if the server lets an account do everything."""
    installed = await cluster.helm("install", WITH_SECRET, "--no-hooks")
    assert installed.code == 0, installed
    async with open_client(config_file(tmp_path, cluster.client.url, f"{NAMESPACE}:{NAME}")) as ours:
        await ours.list(NODES)
        with pytest.raises(Exception, match="cannot list resource"):
            await ours.list(SECRETS)
    assert len(cluster.server.refused) == 1
