"""The Helm chart on an API server that holds service accounts against RBAC: real helm, real jobs, real services.

The roles are proved both ways: whatever a component asks is allowed, and whatever is allowed is asked.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuledger.admission.configuration import MUTATING, VALIDATING, configurations
from gpuledger.admission.configuration import NAME as WEBHOOKS
from gpuledger.admission.main import AdmissionSettings, Reached
from gpuledger.admission.settings import SERVICE
from gpuledger.db.revision import check_current
from gpuledger.kube import crds
from gpuledger.kube.client import KubeClient, open_client
from gpuledger.kube.errors import NotFoundError
from gpuledger.kube.names import (
    CA_SECRET,
    CLUSTER_GPU_POOLS,
    COMPONENT_BY_APP,
    CONTROLLER_TLS_SECRET,
    CRDS,
    DAEMON_SETS,
    EVENTS,
    GPU_DEVICES,
    GPU_NODE_STATES,
    GPU_POOLS,
    MODULE_CONFIG,
    MODULE_CONFIGS,
    NAMESPACES,
    NFD_COVERAGE,
    NODE_FEATURE_RULES,
    NODE_FEATURES,
    NODES,
    PREREQUISITE_NOT_MET,
    RESOURCE_SLICE_STATUSES,
    RESOURCE_SLICES,
    SECRETS,
    Resource,
)
from gpuledger.settings import ADMISSION_LISTEN, COMPONENT_NAMES
from support.chart import (
    CHART,
    IMAGE,
    NAME,
    NAMESPACE,
    RELEASE,
    WITH_SECRET,
    Object,
    Told,
    helm,
    needs_helm,
    render,
)
from support.kube_accounts import ADMIN, JOBS, AccountServer, Asked, Kubelet, config_file
from support.kube_fleet import create, label_like_nfd
from support.kube_server import free_ports
from support.ledgers import eventually
from support.rights import beyond, granted, unused
from support.up import COMMAND, DEADLINE_S

pytestmark = needs_helm

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", namespaced=True)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", namespaced=True)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")
WAIT = ("--timeout", f"{DEADLINE_S:.0f}s")
NODE = "w1"
BUDGETED = {app for app, component in COMPONENT_BY_APP.items() if component in COMPONENT_NAMES}
KEPT = (GPU_DEVICES, GPU_NODE_STATES, RESOURCE_SLICE_STATUSES)
"""The kinds whose objects come and go with the nodes."""

POOLS: dict[Resource, dict[str, str]] = {GPU_POOLS: {"namespace": NAMESPACE}, CLUSTER_GPU_POOLS: {}}
"""The kinds of pools, with where an object of theirs lies."""

HOST = "127.0.0.1"
WITHOUT_POLICY: dict[str, Any] = {"restrictedAccess": {"enabled": False}}
"""The embedded API server has no admission policies."""

TEAM = "ml-team-a"
PRESETS: dict[str, Any] = {
    "priorityClasses": [{"name": "gpu-serving", "value": 1_000_000}],
    "quotas": [
        {"namespace": TEAM, "pools": {"local-a": 4}, "limitRange": {"default": {"cpu": 2}}},
        {"namespace": TEAM, "name": "serving", "clusterPools": {"training": 8}, "priorityClasses": ["gpu-serving"]},
    ],
    "workloads": [
        {"namespace": TEAM, "name": "llm", "podDisruptionBudget": {"selector": {"app": "llm"}, "minAvailable": "50%"}}
    ],
}
"""Presets of the kinds that the embedded API server has."""

RENEWED = {Asked("update", "", "secrets", name, NAMESPACE) for name in (CA_SECRET, CONTROLLER_TLS_SECRET)}
SELDOM = {Asked("delete", RESOURCE_SLICE_STATUSES.group, RESOURCE_SLICE_STATUSES.plural)} | RENEWED
"""What is needed and may not be asked here: a ResourceSliceStatus mostly goes with its slice, before it is deleted, and
certificates are renewed months later."""


class Cluster:
    """A cluster with Node Feature Discovery's kinds and a namespace, and what helm does to it."""

    def __init__(
        self, config: Path, server: AccountServer, client: KubeClient, kubelet: Kubelet, webhooks_port: int
    ) -> None:
        self.config = config
        self.server = server
        self.webhooks_port = webhooks_port
        self.client = client
        self.kubelet = kubelet

    async def helm(self, verb: str, values: dict[str, Any] | None = None, *options: str) -> Told:
        """Run helm on the release."""
        chart = () if verb == "uninstall" else (str(CHART), *WAIT)
        arguments = (verb, RELEASE, *chart, "--namespace", NAMESPACE, *options)
        return await asyncio.to_thread(helm, *arguments, values=values, kubeconfig=self.config)

    async def names(self, resource: Resource) -> set[str]:
        """What of a kind the release has."""
        label = f"app.kubernetes.io/instance={RELEASE}"
        found = (await self.client.list(resource)).items
        return {one["metadata"]["name"] for one in found if label in _labels(one)}

    async def have_webhooks(self) -> None:
        """The configurations are there, as the services apply them."""
        for resource, configuration in configurations(AdmissionSettings(namespace=NAMESPACE), Reached(), b""):
            await self.client.apply(resource, configuration)

    async def webhooks(self) -> list[Object]:
        """The webhooks that the API server asks."""
        found = [one for kind in (MUTATING, VALIDATING) for one in (await self.client.list(kind)).items]
        return [hook for one in found if one["metadata"]["name"] == WEBHOOKS for hook in one["webhooks"]]

    async def has_webhooks(self) -> bool:
        """Whether the API server asks any."""
        return bool(await self.webhooks())

    def asked_by(self, account: str) -> set[Asked]:
        """What an account has asked."""
        return self.server.asked[f"{NAMESPACE}:{account}"]


def _labels(obj: Object) -> list[str]:
    return [f"{key}={value}" for key, value in (obj["metadata"].get("labels") or {}).items()]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    (webhooks_port,) = free_ports(tmp_path / "ports", 1)
    server = AccountServer({(NAMESPACE, SERVICE): (HOST, webhooks_port)})
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(server.serving(HOST, 0))
        config = config_file(tmp_path, url, ADMIN)
        client = await stack.enter_async_context(open_client(config))
        await crds.install(client, crds.foreign())
        await create(client, NAMESPACES, {"metadata": {"name": NAMESPACE}})
        kubelet = await stack.enter_async_context(Kubelet(client, tmp_path).running())
        yield Cluster(config, server, client, kubelet, webhooks_port)


@pytest.fixture
def values(clean_nats_url: str, database_url: str) -> dict[str, Any]:
    """Values with real servers."""
    return {**IMAGE, **WITHOUT_POLICY, "servers": {"natsUrl": clean_nats_url, "databaseUrl": database_url}}


@pytest.mark.long
async def test_a_release_is_installed_upgraded_and_uninstalled(
    cluster: Cluster, values: dict[str, Any], database_url: str
) -> None:
    installed = await cluster.helm("install", values)
    assert installed.code == 0, (installed, cluster.kubelet.ran)
    assert f"rollout status deployment/{NAME}" in installed.out
    migrated, brought = (cluster.kubelet.ran[f"{NAME}-{job}"] for job in ("migrate", "crds"))
    assert (migrated.code, brought.code) == (0, 0)
    assert "Migrated from an empty database" in migrated.log
    assert brought.log.count("created") == len(crds.shipped())
    check_current(database_url)
    assert await cluster.names(JOBS) == set()
    assert await cluster.names(SERVICE_ACCOUNTS) == await cluster.names(SECRETS) == {NAME}
    assert await cluster.names(BUDGETS) == {NAME, *BUDGETED}

    upgraded = await cluster.helm("upgrade", {**values, "replicas": 1})
    assert upgraded.code == 0, upgraded
    assert "nothing to migrate" in cluster.kubelet.ran[f"{NAME}-migrate"].log
    assert cluster.kubelet.ran[f"{NAME}-crds"].log.count("unchanged") == len(crds.shipped())
    assert (await cluster.client.get(DEPLOYMENTS, NAME, NAMESPACE))["spec"]["replicas"] == 1
    assert await cluster.names(BUDGETS) == BUDGETED

    await cluster.have_webhooks()
    assert (await cluster.helm("uninstall")).code == 0
    assert await cluster.webhooks() == []
    account = f"{NAME}-unhook"
    asked, rules = cluster.asked_by(account), granted(render(values), account)
    assert (beyond(asked, rules), unused(asked, rules)) == (set(), set())
    for resource in (DEPLOYMENTS, SECRETS, SERVICE_ACCOUNTS, ROLES, CLUSTER_ROLES, JOBS):
        assert await cluster.names(resource) == set(), resource
    left = {one["metadata"]["name"] for one in (await cluster.client.list(CRDS)).items}
    assert {crd["metadata"]["name"] for crd in crds.shipped()} <= left


async def test_installing_the_kinds_needs_just_the_rights_of_its_role(cluster: Cluster, values: dict[str, Any]) -> None:
    assert (await cluster.helm("install", values)).code == 0
    asked, rules = cluster.asked_by(f"{NAME}-crds"), granted(render(values), f"{NAME}-crds")
    assert (beyond(asked, rules), unused(asked, rules)) == (set(), set())
    assert cluster.server.refused == []


@pytest.mark.long
async def test_a_migration_that_fails_stops_the_install_which_can_be_repeated(
    cluster: Cluster, values: dict[str, Any]
) -> None:
    servers = {**values["servers"], "databaseUrl": "postgresql://nobody@127.0.0.1:1/none"}
    installed = await cluster.helm("install", {**values, "servers": servers})
    assert installed.code != 0
    assert "pre-install" in installed.err
    ran = cluster.kubelet.ran[f"{NAME}-migrate"]
    assert ran.code == 4
    assert "PostgreSQL" in ran.log
    assert await cluster.names(DEPLOYMENTS) == set()
    assert await cluster.names(JOBS) == {f"{NAME}-migrate"}

    repeated = await cluster.helm("upgrade", values, "--install")
    assert repeated.code == 0, repeated
    assert await cluster.names(DEPLOYMENTS) == {NAME}
    assert await cluster.names(JOBS) == set()


@pytest.mark.long
async def test_coverage_fails_a_release_whose_labels_are_wrong(cluster: Cluster, values: dict[str, Any]) -> None:
    values |= {"nfdCoverage": {"enabled": True}}
    await create(cluster.client, NODE_FEATURE_RULES, crds.node_feature_rule())
    await label_like_nfd(cluster.client, NODE)
    installed = await cluster.helm("install", values)
    assert installed.code == 0, (installed, cluster.kubelet.ran)
    assert "Every label is as it should be: 1 GPU nodes" in cluster.kubelet.ran[NFD_COVERAGE].log

    labels = {"gpu.deckhouse.io/device-count": "7"}
    await cluster.client.merge_patch(NODES, NODE, {"metadata": {"labels": labels}})
    upgraded = await cluster.helm("upgrade", values)
    assert upgraded.code != 0
    assert "post-upgrade" in upgraded.err
    ran = cluster.kubelet.ran[NFD_COVERAGE]
    assert ran.code == 1
    assert "gpu.deckhouse.io/device-count" in ran.log
    job = await cluster.client.get(JOBS, NFD_COVERAGE, NAMESPACE)
    assert {one["type"] for one in job["status"]["conditions"]} >= {"Failed"}

    account = f"{NAME}-nfd-coverage"
    asked, rules = cluster.asked_by(account), granted(render(values), account)
    assert (beyond(asked, rules), unused(asked, rules)) == (set(), set())
    assert cluster.server.refused == []


@asynccontextmanager
async def serving(environ: dict[str, str]) -> AsyncIterator[None]:
    """`gpuledger up` as the Deployment's pods run it, but for the port."""
    command = (*COMMAND, "up", "--listen", "127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.DEVNULL)
    try:
        yield
        assert process.returncode is None
    finally:
        process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            await process.wait()


@pytest.mark.long
async def test_the_services_need_just_the_rights_of_their_roles(cluster: Cluster, values: dict[str, Any]) -> None:
    assert (await cluster.helm("install", values)).code == 0
    pod = (await cluster.client.get(DEPLOYMENTS, NAME, NAMESPACE))["spec"]["template"]["spec"]
    environ = await cluster.kubelet.environment(NAMESPACE, pod)
    environ[ADMISSION_LISTEN] = f"{HOST}:{cluster.webhooks_port}"
    await create(cluster.client, MODULE_CONFIGS, {"metadata": {"name": MODULE_CONFIG}, "spec": {"enabled": True}})
    async with serving(environ):
        await eventually(cluster.has_webhooks)
        await _live(cluster.client)
    await _differ(cluster.client)
    verified = await asyncio.to_thread(
        subprocess.run, (*COMMAND, "verify", "--kube"), env=environ, capture_output=True, timeout=DEADLINE_S
    )
    assert (verified.returncode, b"ClusterGPUPool/" in verified.stdout) == (1, True), verified
    asked, rules = cluster.asked_by(NAME), granted(render(values), NAME, f"{NAME}-components", f"{NAME}-admission")
    assert (beyond(asked, rules), unused(asked | SELDOM, rules)) == (set(), set())
    assert cluster.server.refused == []


async def _live(client: KubeClient) -> None:
    """Everything that leads the services to a request: nodes come and go, and people meddle."""
    await create(client, NODES, {"metadata": {"name": "bare"}})
    await eventually(partial(_is_told_of_a_missing_prerequisite, client))
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
    await eventually(partial(_are_components, client, 4))
    await eventually(partial(_is_counted_after_meddling, client))
    off = {"bootstrap": {name: {"enabled": False} for name in ("validator", "gfd", "dcgm", "dcgmExporter")}}
    await client.merge_patch(MODULE_CONFIGS, MODULE_CONFIG, {"spec": {"settings": off}})
    await eventually(partial(_are_components, client, 0))
    await client.delete(NODE_FEATURES, "w2", "default")
    await client.delete(NODES, "w2")
    await client.delete(RESOURCE_SLICES, "w2")
    for resource in KEPT:
        await eventually(partial(_have_a_status, client, resource, 1))


def _slice(node: str) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": node, "devices": [{"name": "gpu-0"}]}
    return {"metadata": {"name": node}, "spec": spec}


async def _is_told_of_a_missing_prerequisite(client: KubeClient) -> bool:
    told = (await client.get(MODULE_CONFIGS, MODULE_CONFIG)).get("status") or {}
    return any(one["type"] == PREREQUISITE_NOT_MET for one in told.get("conditions") or ())


async def _are_components(client: KubeClient, number: int) -> bool:
    return len((await client.list(DAEMON_SETS)).items) == number


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


async def test_a_right_that_is_missing_is_noticed(cluster: Cluster, tmp_path: Path) -> None:
    """The proof above is none if the server lets an account do everything."""
    installed = await cluster.helm("install", {**WITH_SECRET, **WITHOUT_POLICY}, "--no-hooks")
    assert installed.code == 0, installed
    async with open_client(config_file(tmp_path, cluster.client.url, f"{NAMESPACE}:{NAME}")) as ours:
        await ours.list(NODES)
        with pytest.raises(Exception, match="cannot list resource"):
            await ours.list(SECRETS)
    assert len(cluster.server.refused) == 1


async def test_presets_are_objects_that_kubernetes_takes_and_that_go_with_the_release(cluster: Cluster) -> None:
    await create(cluster.client, NAMESPACES, {"metadata": {"name": TEAM}})
    values = {**WITH_SECRET, **WITHOUT_POLICY, "presets": PRESETS}
    installed = await cluster.helm("install", values, "--no-hooks")
    assert installed.code == 0, installed
    hard = {one["metadata"]["name"]: one["spec"]["hard"] for one in (await cluster.client.list(RESOURCE_QUOTAS)).items}
    assert hard == {
        "gpu-control-plane": {"requests.gpu.deckhouse.io/local-a": "4"},
        "serving": {"requests.cluster.gpu.deckhouse.io/training": "8"},
    }
    (limit,) = (await cluster.client.get(LIMIT_RANGES, "gpu-control-plane", TEAM))["spec"]["limits"]
    assert limit["default"] == {"cpu": "2"}
    assert (await cluster.client.get(PRIORITY_CLASSES, "gpu-serving"))["value"] == 1_000_000
    assert await cluster.names(BUDGETS) == {NAME, *BUDGETED, "llm"}

    assert (await cluster.helm("uninstall", None, "--no-hooks")).code == 0
    for resource in (RESOURCE_QUOTAS, LIMIT_RANGES, PRIORITY_CLASSES, BUDGETS):
        assert await cluster.names(resource) == set(), resource
