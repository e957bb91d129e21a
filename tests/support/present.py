"""A cluster of one node with two cards for commands that read Kubernetes alone, and what they say of themselves."""

from typing import Any

import pytest

from gpuledger.api.kinds import DEVICE_CLASSES, NAMESPACES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from gpuledger.cli.source import PRESENT_ONLY
from gpuledger.edge.kube.client import KubeClient
from support.cli import Cli, Result, Run, aside
from support.kube_fleet import create

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
DRIVER = "gpu.example.com"

Json = dict[str, Any]


def laptop(home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line without any server but that of a kubeconfig."""
    for name in ("NATS_URL", "DATABASE_URL", "GPULEDGER_DATA_DIR", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("NO_COLOR", "1")
    return aside(Cli(capsys))


async def equip(client: KubeClient) -> None:
    """Two cards on w1, one of them held by team-b/train; team-a/wants requests two."""
    for namespace in ("team-a", "team-b"):
        await create_namespace(client, namespace)
    labels = {"gpu.deckhouse.io/present": "true"}
    await create(client, NODES, {"metadata": {"name": "w1", "labels": labels}, "spec": {}})
    await client.merge_patch(NODES, "w1", {"spec": {"taints": None}})  # those of a node that is not ready yet
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    await create(client, DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": spec})
    pool = {"name": "w1", "generation": 1, "resourceSliceCount": 1}
    published = {"driver": DRIVER, "nodeName": "w1", "pool": pool, "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}
    await create(client, RESOURCE_SLICES, {"metadata": {"name": "w1-slice"}, "spec": published})
    await create_claim(client, "train", "team-b")
    result = {"request": "gpu", "driver": DRIVER, "pool": "w1", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    await client.merge_patch(RESOURCE_CLAIMS, "train", {"status": status}, "team-b", subresource="status")
    await create_claim(client, "wants", "team-a", count=2)


async def create_namespace(client: KubeClient, name: str) -> None:
    await create(client, NAMESPACES, {"metadata": {"name": name}})
    await create(client, ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})


async def create_claim(client: KubeClient, name: str, namespace: str, count: int = 1, **metadata: Any) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}
    spec = {"devices": {"requests": [request]}}
    await create(
        client, RESOURCE_CLAIMS, {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec}
    )


async def create_pod(client: KubeClient, name: str, *claims: Json, **limits: str) -> None:
    container: Json = {"name": "c", "image": "none"}
    if limits:
        container["resources"] = {"limits": limits}
    spec: Json = {"containers": [container], "serviceAccountName": "default"}
    spec |= {"resourceClaims": list(claims)} if claims else {}
    await create(client, PODS, {"metadata": {"name": name, "namespace": "team-a"}, "spec": spec})


async def present(run: Run, *arguments: str) -> Result:
    """What a command prints, which is about the present and says so."""
    result = await run(*arguments)
    assert result.code == 0, result.err
    assert result.err.splitlines()[0] == PRESENT_ONLY
    return result


def rows(result: Result) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in result.out.splitlines()]
