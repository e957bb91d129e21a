"""A release of the first chart that there was, with its build, is upgraded as installing.md says, by real helm.

Whoever installed then has none of the values that came later, rows and a log of the old build, and selectors that can
never change.
"""

import asyncio
import shlex
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuledger.api.kinds import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, GPU_DEVICES, JOBS, SECRETS, Resource
from gpuledger.edge.kube.client import KubeClient
from support.chart import (
    CHART,
    IMAGE,
    NAME,
    NAMESPACE,
    RELEASE,
    WITH_SECRET,
    Manifests,
    helm,
    is_hook,
    manifests,
    needs_helm,
    template,
)
from support.chart_cluster import Cluster, serving
from support.first_chart import FirstChart, first_chart
from support.kube_accounts import BINDINGS, ROLES, THIS_TREE, Image
from support.kube_fleet import label_like_nfd
from support.paths import ROOT
from support.up import DEADLINE_S
from support.waiting import eventually

pytestmark = needs_helm

CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", namespaced=True)
SERVICES = Resource("", "v1", "services", "Service", namespaced=True)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
CLUSTER_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding")
POLICIES, POLICY_BINDINGS = (
    Resource("admissionregistration.k8s.io", "v1", plural, kind)
    for plural, kind in (
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    )
)
KINDS = {
    one.kind: one
    for one in (
        *(DEPLOYMENTS, DAEMON_SETS, JOBS, CRON_JOBS, SERVICES, SERVICE_ACCOUNTS, SECRETS, CONFIG_MAPS, BUDGETS),
        *(ROLES, BINDINGS, CLUSTER_ROLES, CLUSTER_BINDINGS, POLICIES, POLICY_BINDINGS),
    )
}
"""Every kind of the objects that either chart makes of these values."""

NODE = "w1"


@pytest.fixture
def first(tmp_path: Path) -> FirstChart:
    return first_chart(tmp_path / "first")


@pytest.fixture
def theirs(clean_nats_url: str, database_url: str) -> dict[str, Any]:
    """What somebody set when the first chart was all there was."""
    return {
        **IMAGE,
        "replicas": 1,
        "servers": {"natsUrl": clean_nats_url, "databaseUrl": database_url},
        "podLabels": {"team": "platform"},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "nfdCoverage": {"enabled": True, "schedule": "17 * * * *"},
    }


@pytest.fixture
async def labelled(cluster: Cluster) -> KubeClient:
    """A cluster with a node that has a GPU."""
    await label_like_nfd(cluster.client, NODE)
    return cluster.client


@pytest.mark.long
async def test_a_release_of_the_first_chart_is_upgraded_as_the_page_says(
    cluster: Cluster, labelled: KubeClient, first: FirstChart, theirs: dict[str, Any], tmp_path: Path
) -> None:
    cluster.kubelet.image = await asyncio.to_thread(lambda: first.build(tmp_path).image)
    installed = await cluster.helm("install", theirs, chart=first.folder)
    assert installed.code == 0, (installed, cluster.kubelet.ran)
    before = await cluster.client.get(DEPLOYMENTS, NAME, NAMESPACE)
    await served(cluster, cluster.kubelet.image)
    old = await released(cluster)

    cluster.kubelet.image = THIS_TREE
    cluster.kubelet.ran.clear()
    upgraded = await cluster.helm("upgrade", None, *options_of_the_page())
    assert upgraded.code == 0, (upgraded, cluster.kubelet.ran)
    assert {name: ran.code for name, ran in cluster.kubelet.ran.items()} == {f"{NAME}-migrate": 0, f"{NAME}-crds": 0}
    after = await cluster.client.get(DEPLOYMENTS, NAME, NAMESPACE)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["selector"] == before["spec"]["selector"]
    assert after["spec"]["replicas"] == 1
    pod = after["spec"]["template"]
    assert pod["metadata"]["labels"]["team"] == "platform"
    assert pod["spec"]["nodeSelector"] == theirs["nodeSelector"]
    new = await released(cluster)
    found = await present(cluster.client)
    assert new <= found
    assert found & old <= new, "what only the first chart had is gone"

    await served(cluster, THIS_TREE)
    assert (await cluster.helm("uninstall")).code == 0
    assert await present(cluster.client) & (old | new) == set()
    assert await of_release(cluster.client) == {("Job", f"{NAME}-uninstall")}, "its log says what remains"


@pytest.mark.long
async def test_values_of_the_first_chart_alone_are_refused_with_the_option_that_helps(
    cluster: Cluster, first: FirstChart, theirs: dict[str, Any]
) -> None:
    """With `--reuse-values` helm leaves out the defaults of what has been added since."""
    installed = await cluster.helm("install", theirs, "--no-hooks", chart=first.folder)
    assert installed.code == 0, installed
    upgraded = await cluster.helm("upgrade", None, "--reuse-values")
    assert upgraded.code != 0
    assert "--reset-then-reuse-values" in upgraded.err


def test_every_value_that_the_first_chart_had_still_exists(first: FirstChart) -> None:
    result = template({**first.values(), **IMAGE, "servers": {"existingSecret": "given"}})
    assert result.code == 0, result.err


def test_values_without_any_default_that_came_later_are_refused_by_its_name(first: FirstChart) -> None:
    added = sorted(yaml.safe_load((CHART / "values.yaml").read_text()).keys() - first.values().keys())
    assert added
    for name in added:
        result = template({**WITH_SECRET, name: None})
        assert result.code != 0
        assert f"lack the defaults of {name}," in result.err, f"add {name} to gpuledger.checkDefaults"


def options_of_the_page() -> list[str]:
    """What the page has after the chart in its command for an upgrade."""
    text = (ROOT / "docs" / "installing.md").read_text().partition("\n## Upgrade\n")[2]
    (command,) = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    words = shlex.split(command)
    return words[words.index("charts/gpuledger") + 1 :]


async def served(cluster: Cluster, image: Image) -> None:
    """The Deployment's pods run a build: it becomes ready, and the node's card has its GPUDevice."""
    async with serving(await cluster.pod_environment(), image) as process:
        url = await health_url(process)
        await eventually(partial(is_ready, url), interval_s=0.2)
        await eventually(partial(has_device, cluster.client))
        assert cluster.server.refused == []


async def health_url(process: asyncio.subprocess.Process) -> str:
    """Where it says whether it is ready."""
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        async for line in process.stdout:
            if b"/healthz" in line:
                return line.decode().split()[-1]
    raise AssertionError("the process ended")


async def is_ready(url: str) -> bool:
    return await asyncio.to_thread(answers, url)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False


async def has_device(client: KubeClient) -> bool:
    """It has one, whose status is written."""
    found = (await client.list(GPU_DEVICES)).items
    return [one.get("status", {}).get("nodeName") for one in found] == [NODE]


async def released(cluster: Cluster) -> set[tuple[str, str]]:
    """The objects of the release, as helm recorded them."""
    shown = await asyncio.to_thread(
        helm, "get", "manifest", RELEASE, "--namespace", NAMESPACE, kubeconfig=cluster.config
    )
    assert shown.code == 0, shown
    made: Manifests = manifests(shown.out)
    assert made.kinds() <= set(KINDS), "this test looks for these kinds alone: add what is new"
    return {(one["kind"], one["metadata"]["name"]) for one in made.objects if not is_hook(one)}


async def present(client: KubeClient) -> set[tuple[str, str]]:
    """Every object of these kinds."""
    return {(kind, one["metadata"]["name"]) for kind, one in await everything(client)}


async def of_release(client: KubeClient) -> set[tuple[str, str]]:
    """Those that bear the release's label."""
    label = "app.kubernetes.io/instance"
    found = await everything(client)
    return {(kind, m["name"]) for kind, one in found if (m := one["metadata"]).get("labels", {}).get(label) == RELEASE}


async def everything(client: KubeClient) -> list[tuple[str, dict[str, Any]]]:
    return [(kind, one) for kind, resource in KINDS.items() for one in (await client.list(resource)).items]
