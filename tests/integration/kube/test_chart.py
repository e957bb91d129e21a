"""The Helm chart on an API server that holds service accounts against RBAC: real helm, and real jobs.

The roles are proved both ways: whatever a job asks is allowed, and whatever is allowed is asked.
"""

from typing import Any

import pytest

from gpuledger.api.kinds import (
    CRDS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NFD_COVERAGE,
    NODE_FEATURE_RULES,
    NODES,
    SECRETS,
    Resource,
    shared_devices,
)
from gpuledger.api.labels import COMPONENT_BY_APP
from gpuledger.db.revision import check_current
from gpuledger.edge.kube import crds
from gpuledger.runtime.settings import COMPONENT_NAMES
from support.chart import NAME, NAMESPACE, WITH_SECRET, needs_helm, render
from support.chart_cluster import Cluster
from support.kube_accounts import Permission
from support.kube_fleet import create, label_like_nfd
from support.rights import beyond, granted, unused
from support.uninstalling import LEFT_OF_POOLS, THEIRS, finalizers, leave_behind, names

pytestmark = needs_helm

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", namespaced=True)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", namespaced=True)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")
NODE = "w1"
BUDGETED = {app for app, component in COMPONENT_BY_APP.items() if component in COMPONENT_NAMES}
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

AGENT = "gpu-node-agent"
COMPONENTS_REMOVED = {Permission("delete", "apps", "daemonsets", name, NAMESPACE) for name in BUDGETED}
"""What the job `uninstall` asks where all components run."""


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
    assert await cluster.names(SECRETS) == {NAME}
    assert await cluster.names(SERVICE_ACCOUNTS) == {NAME, f"{NAME}-nfd-coverage"}
    assert await cluster.names(BUDGETS) == {NAME, *BUDGETED}

    upgraded = await cluster.helm("upgrade", {**values, "replicas": 1})
    assert upgraded.code == 0, upgraded
    assert "nothing to migrate" in cluster.kubelet.ran[f"{NAME}-migrate"].log
    assert cluster.kubelet.ran[f"{NAME}-crds"].log.count("unchanged") == len(crds.shipped())
    assert (await cluster.client.get(DEPLOYMENTS, NAME, NAMESPACE))["spec"]["replicas"] == 1
    assert await cluster.names(BUDGETS) == {NAME, *BUDGETED}

    await leave_behind(cluster.client, NAMESPACE)
    await create(cluster.client, shared_devices(), {"metadata": {"name": "gpus"}, "spec": {"devices": []}})
    await cluster.have_webhooks()
    assert (await cluster.helm("uninstall")).code == 0
    assert await cluster.webhooks() == []
    assert await finalizers(cluster.client) == LEFT_OF_POOLS
    assert await names(cluster.client, DAEMON_SETS) == {THEIRS}
    for account in (f"{NAME}-unhook", f"{NAME}-uninstall"):
        requested, rules = cluster.requested_by(account), granted(render(values), account)
        assert (beyond(requested, rules), unused(requested | COMPONENTS_REMOVED, rules)) == (set(), set()), account
    for resource in (DEPLOYMENTS, SECRETS, SERVICE_ACCOUNTS, ROLES, CLUSTER_ROLES):
        assert await cluster.names(resource) == set(), resource
    assert await cluster.names(JOBS) == {f"{NAME}-uninstall"}, "its log says what remains"
    assert "Remaining in Kubernetes: 4 pools" in cluster.kubelet.ran[f"{NAME}-uninstall"].log
    left = {one["metadata"]["name"] for one in (await cluster.client.list(CRDS)).items}
    assert {crd["metadata"]["name"] for crd in crds.shipped()} <= left


async def test_installing_the_kinds_needs_just_the_rights_of_its_role(cluster: Cluster, values: dict[str, Any]) -> None:
    assert (await cluster.helm("install", values)).code == 0
    requested, rules = cluster.requested_by(f"{NAME}-crds"), granted(render(values), f"{NAME}-crds")
    assert (beyond(requested, rules), unused(requested, rules)) == (set(), set())
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
    requested, rules = cluster.requested_by(account), granted(render(values), account)
    assert (beyond(requested, rules), unused(requested, rules)) == (set(), set())
    assert cluster.server.refused == []


async def test_presets_are_objects_that_kubernetes_takes_and_that_go_with_the_release(cluster: Cluster) -> None:
    await create(cluster.client, NAMESPACES, {"metadata": {"name": TEAM}})
    values = {**WITH_SECRET, "presets": PRESETS}
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


async def test_the_agents_daemon_set_is_one_that_kubernetes_takes_as_it_is(cluster: Cluster) -> None:
    nats = {
        "url": "tls://nats.example:4222",
        "credentialsSecret": "agents",
        "tlsVolume": {"hostPath": {"path": "/tls"}},
    }
    agent = {"enabled": True, "allocate": "both", "nats": nats, "nodes": "labelled"}
    values = {**WITH_SECRET, "agent": agent, "components": {"runtimeClassName": "nvidia"}}
    installed = await cluster.helm("install", values, "--no-hooks")
    assert installed.code == 0, installed
    kept = await cluster.client.get(DAEMON_SETS, AGENT, NAMESPACE)
    assert lost(render(values).one("DaemonSet", AGENT)["spec"], kept["spec"]) == []
    assert await cluster.names(BUDGETS) == {NAME, AGENT, *BUDGETED}

    assert (await cluster.helm("uninstall", None, "--no-hooks")).code == 0
    assert await cluster.names(DAEMON_SETS) == set()


def lost(given: Any, kept: Any, path: str = "spec") -> list[str]:
    """Where what was given does not stand in what was kept."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [found for key, value in given.items() for found in lost(value, kept.get(key), f"{path}.{key}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        pairs = zip(given, kept, strict=True)
        return [found for place, (one, other) in enumerate(pairs) for found in lost(one, other, f"{path}[{place}]")]
    return [] if given == kept else [f"{path}: {given!r}, not {kept!r}"]
