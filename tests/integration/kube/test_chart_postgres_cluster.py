"""Three PostgreSQL servers by the chart on a cluster with CloudNativePG's API, whose operator does not run here."""

from base64 import b64encode
from typing import Any

import pytest

from gpuledger.api.kinds import SECRETS, Resource
from gpuledger.edge.kube import crds
from support.chart import IMAGE, NAME, NAMESPACE, needs_helm
from support.chart_cluster import Cluster
from support.chart_servers import POSTGRES, STATEFUL_SETS
from support.kube_accounts import JOBS
from support.kube_fleet import create

pytestmark = [needs_helm, pytest.mark.long]

GROUP = "postgresql.cnpg.io"
CLUSTERS = Resource(GROUP, "v1", "clusters", "Cluster", namespaced=True)
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"clusters.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "Cluster", "listKind": "ClusterList", "plural": "clusters", "singular": "cluster"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}},
                "subresources": {"status": {}},
            }
        ],
    },
}
ONE: dict[str, Any] = IMAGE
THREE: dict[str, Any] = {**ONE, "postgresql": {"replicas": 3}}
MIGRATION = f"{NAME}-migrate"


async def test_three_servers_need_the_operator_which_brings_them(cluster: Cluster) -> None:
    refused = await cluster.helm("install", THREE)
    assert refused.code != 0
    assert "needs the operator CloudNativePG" in refused.err

    await crds.install(cluster.client, [DEFINITION])
    await made_by_operator(cluster)
    installed = await cluster.helm("install", THREE)
    assert installed.code == 0, (installed, cluster.kubelet.ran)
    assert await cluster.names(CLUSTERS) == {POSTGRES}
    assert POSTGRES not in await cluster.names(STATEFUL_SETS)
    assert await cluster.names(JOBS) >= {f"{MIGRATION}-1"}, "a hook would wait for a server that is only coming"

    one = await cluster.helm("upgrade", ONE)
    assert one.code != 0
    assert f"cannot become 1 while the Cluster {POSTGRES} is there" in one.err

    ready = {"status": {"replicas": 1, "readyReplicas": 1}}
    await cluster.client.merge_patch(STATEFUL_SETS, f"{NAME}-nats", ready, NAMESPACE, subresource="status")
    assert f"name: {MIGRATION}-2\n" in await planned(cluster)
    status = {"status": {"readyInstances": 1}}
    await cluster.client.merge_patch(CLUSTERS, POSTGRES, status, NAMESPACE, subresource="status")
    assert f"name: {MIGRATION}-2\n" not in await planned(cluster), "the server is there: a hook migrates it"


async def test_one_server_does_not_become_three_under_its_data(cluster: Cluster) -> None:
    assert (await cluster.helm("install", ONE)).code == 0
    await crds.install(cluster.client, [DEFINITION])
    three = await cluster.helm("upgrade", THREE)
    assert three.code != 0
    assert f"cannot become 3 while the StatefulSet {POSTGRES} runs the one server" in three.err
    assert (await cluster.helm("upgrade", ONE, "--dry-run=server")).code == 0


async def made_by_operator(cluster: Cluster) -> None:
    """The Secrets of a Cluster, whose server is not there yet."""
    for suffix, data in (
        ("app", {"uri": "postgresql://u:p@127.0.0.1:1/gpuledger"}),
        ("ca", {"ca.crt": "", "ca.key": ""}),
    ):
        encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
        secret = {"metadata": {"name": f"{POSTGRES}-{suffix}", "namespace": NAMESPACE}, "data": encoded}
        await create(cluster.client, SECRETS, secret)


async def planned(cluster: Cluster) -> str:
    """What an upgrade would do now."""
    upgraded = await cluster.helm("upgrade", THREE, "--dry-run=server")
    assert upgraded.code == 0, upgraded
    return upgraded.out
