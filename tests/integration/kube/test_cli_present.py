"""The command line with a kubeconfig and no ledger: the present, read from Kubernetes alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from gpuledger.api.kinds import (
    DEVICE_CLASSES,
    GPU_NODE_STATES,
    GPU_POOLS,
    MODULE_CONFIG,
    MODULE_CONFIGS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from gpuledger.cli.source import PRESENT_ONLY
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.tools.explain.consumers import NO_CONSUMER
from support.cli import Cli, Result, Run, aside
from support.kube import kube_api
from support.kube_accounts import AccountServer, config_file
from support.kube_fleet import create, create_device
from support.kube_server import KubeServer

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding")
DRIVER, UNITS = "gpu.example.com", "gpu.deckhouse.io/a"

Json = dict[str, Any]


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line without any server but that of a kubeconfig."""
    for name in ("NATS_URL", "DATABASE_URL", "GPULEDGER_DATA_DIR", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    return aside(Cli(capsys))


@pytest.fixture
async def run(laptop: Run, kube: KubeServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same, with a cluster: two cards on w1, one of them held, and one pool of units."""
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
    await equip(client)
    return laptop


async def equip(client: KubeClient) -> None:
    for namespace in ("team-a", "team-b"):
        await create_namespace(client, namespace)
    await create(
        client, NODES, {"metadata": {"name": "w1", "labels": {"gpu.deckhouse.io/present": "true"}}, "spec": {}}
    )
    await client.merge_patch(NODES, "w1", {"spec": {"taints": None}})  # those of a node that is not ready yet
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    await create(client, DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": spec})
    pool = {"name": "w1", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0"}, {"name": "gpu-1"}]
    published = {"driver": DRIVER, "nodeName": "w1", "pool": pool, "devices": devices}
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
    made = {
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"devices": {"requests": [request]}},
    }
    await create(client, RESOURCE_CLAIMS, made)


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
    return [line.split() for line in result.out.splitlines()]


async def test_slices_their_pools_and_claims_are_listed(run: Run, tmp_path: Path) -> None:
    table = rows(await present(run, "get", "slices"))
    assert table[0][:5] == ["NAME", "DRIVER", "POOL", "NODE", "TOTAL"]
    assert table[1] == ["w1-slice", DRIVER, "w1", "w1", "2", "1", "1", "0"]
    (pool,) = (await present(run, "get", "slicepools", "-o", "json")).json()
    assert (pool["allocatedDevices"], pool["availableDevices"], pool["complete"], pool["valid"]) == (1, 1, True, True)
    assert (await present(run, "get", "claims", "-o", "name")).out.split() == [
        "claim/team-a/wants",
        "claim/team-b/train",
    ]
    (train,) = (await present(run, "get", "claims", "train", "-n", "team-b", "-o", "json")).json()
    assert (train["phase"], train["held"][0]["device"]) == ("Allocated", "gpu-0")
    missing = await run("get", "slices", "none")
    assert (missing.code, "slice 'none' was not found" in missing.err) == (1, True)
    assert not (tmp_path / "home").exists()  # where a ledger would have been started


async def test_kinds_of_kubernetes_say_that_the_past_was_not_asked(run: Run, client: KubeClient) -> None:
    await create_device(client, "w1-0")
    assert (await present(run, "get", "gpudevices", "-o", "name")).out.split() == ["gpudevice.gpu.deckhouse.io/w1-0"]
    assert (await present(run, "get", "pools", "-o", "name")).out == ""


async def test_a_slice_is_described(run: Run) -> None:
    page = await present(run, "describe", "slice", "w1-slice")
    for text in (
        "the slices and claims of Kubernetes",
        "Total Devices:",
        "Claim Name:",
        "you may read claims everywhere",
    ):
        assert text in page.out
    assert ["Claim", "Name:", "train"] in rows(page)
    assert ["Allocated", "Devices:", "1"] in rows(page)
    missing = await run("describe", "slice", "none")
    assert (missing.code, "slice 'none' was not found" in missing.err) == (1, True)


async def test_a_node_is_described(run: Run, client: KubeClient) -> None:
    condition = {"type": "Configured", "status": "False", "reason": "NodeNotReady"}
    condition |= {"lastTransitionTime": "2026-01-01T01:00:00Z"}
    reference = {"name": "a", "namespace": "team-a"}
    await create_device(client, "w1-0", state="PendingAssignment", poolRef=reference, conditions=[condition])
    await create(client, GPU_NODE_STATES, {"metadata": {"name": "w1"}, "spec": {"nodeName": "w1"}})
    page = await present(run, "describe", "node", "w1")
    assert ["w1-0", "PendingAssignment", "<none>", "true", "team-a/a", "Pending", "NodeNotReady"] in rows(page)
    assert ["Allocated", "To:", "team-b/train"] in rows(page)
    assert "Status from:  Kubernetes" in page.out
    assert "Slots" not in page.out  # only a ledger has them
    missing = await run("describe", "node", "none")
    assert (missing.code, "node 'none' was not found" in missing.err) == (1, True)


async def test_a_claim_waits_for_a_pod_that_refers_to_it(run: Run, client: KubeClient) -> None:
    short = "request gpu: 2 devices requested, 1 available: 1 taken"
    found = (await present(run, "why", "claim", "team-a/wants", "-o", "json")).json()
    assert found["answer"] == f"{NO_CONSUMER}; {short}"
    (option,) = found["claims"][0]["requests"][0]["alternatives"]
    assert option["pools"][0]["reasons"][0]["claims"] == ["team-b/train"]
    await create_pod(client, "trainer", {"name": "gpu", "resourceClaimName": "wants"})
    page = await present(run, "why", "claim", "team-a/wants")
    assert ["Used", "by", "pods:", "trainer"] in rows(page)
    assert NO_CONSUMER not in page.out
    held = await present(run, "why", "claim", "team-b/train")
    assert f"gpu has {DRIVER}/w1/gpu-0" in held.out
    assert NO_CONSUMER not in held.out


async def test_why_knows_what_else_a_claims_name_may_mean(run: Run, client: KubeClient) -> None:
    template = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}}
    await create(
        client, RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": "big", "namespace": "team-a"}, "spec": template}
    )
    await create_pod(client, "p", {"name": "gpu", "resourceClaimTemplateName": "big"})
    meant = await run("why", "claim", "team-a/big")
    assert (meant.code, "big is a ResourceClaimTemplate" in meant.err) == (1, True)
    assert "Ask `gpuledger why pod team-a/p`" in meant.err
    assert "p is a Pod. Ask `gpuledger why pod team-a/p`" in (await run("why", "claim", "team-a/p")).err
    await create_claim(client, "p-gpu-x", "team-a", annotations={"resource.kubernetes.io/pod-claim-name": "gpu"})
    made = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}}
    await client.merge_patch(PODS, "p", made, "team-a", subresource="status")
    assert "Ask about one of them: team-a/p-gpu-x" in (await run("why", "claim", "team-a/big")).err
    notes = (await present(run, "why", "claim", "team-a/p-gpu-x", "-o", "json")).json()["notes"]
    assert any("A template made this claim for the entry gpu" in note for note in notes)
    unknown = await run("why", "claim", "team-a/none")
    assert (unknown.code, "claim 'team-a/none' was not found. List them" in unknown.err) == (1, True)


async def test_a_pod_waits_for_the_claim_of_an_extended_resource(run: Run, client: KubeClient) -> None:
    await client.merge_patch(DEVICE_CLASSES, "gpu", {"spec": {"extendedResourceName": "example.com/gpu"}})
    await create_pod(client, "p", **{"example.com/gpu": "1"})
    answer = (await present(run, "why", "pod", "team-a/p", "-o", "json")).json()["answer"]
    assert answer.startswith("DeviceClass gpu provides example.com/gpu, and the scheduler makes a claim for it")
    meant = await run("why", "claim", "example.com/gpu")
    assert (meant.code, "is an extended resource that DeviceClass gpu provides" in meant.err) == (1, True)
    await create_claim(client, "p-extended", "team-a")
    made = {"resourceClaimName": "p-extended", "requestMappings": []}
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "gpu"}
    status = {"status": {"extendedResourceClaimStatus": made | {"requestMappings": [mapping]}}}
    await client.merge_patch(PODS, "p", status, "team-a", subresource="status")
    document = (await present(run, "why", "pod", "team-a/p", "-o", "json")).json()
    assert [one["claim"] for one in document["claims"]] == ["team-a/p-extended"]
    assert document["answer"].startswith("it could be allocated now on node w1")


async def test_why_a_pod_waits_for_units(run: Run, client: KubeClient) -> None:
    spec = {"provider": "Nvidia", "backend": "DevicePlugin", "resource": {"unit": "Card"}}
    await create(client, GPU_POOLS, {"metadata": {"name": "a", "namespace": "team-a"}, "spec": spec})
    status = {"capacity": {"total": 2, "used": 0, "available": 2}}
    await client.merge_patch(GPU_POOLS, "a", {"status": status}, "team-a", subresource="status")
    offered = {"capacity": {UNITS: "2"}, "allocatable": {UNITS: "2"}}
    await client.merge_patch(NODES, "w1", {"status": offered}, subresource="status")
    await create_pod(client, "waits", **{UNITS: "2"})
    found = (await present(run, "why", "pod", "team-a/waits", "-o", "json")).json()
    assert found["answer"] == f"2 units of {UNITS} requested, and 2 are free on node w1: no unit is missing"
    await create_pod(client, "has", **{UNITS: "1"})
    await client.merge_patch(NODES, "w1", {"spec": {"unschedulable": True}})
    found = (await present(run, "why", "pod", "team-a/waits", "-o", "json")).json()
    assert found["pools"][0]["reason"] == "NodesClosed"
    assert found["pools"][0]["othersWaiting"] == 1
    missing = await run("why", "pod", "team-a/none")
    assert (missing.code, "pod 'team-a/none' was not found" in missing.err) == (1, True)


async def test_the_setting_redacted_holds_without_a_ledger(run: Run, client: KubeClient) -> None:
    settings = {"dra": {"claimReferences": "Redacted"}}
    spec = {"version": 1, "enabled": True, "settings": settings}
    await create(client, MODULE_CONFIGS, {"metadata": {"name": MODULE_CONFIG}, "spec": spec})
    page = await present(run, "describe", "slice", "w1-slice")
    assert "Allocated (1 claim)" in page.out
    assert "train" not in page.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "slices", "--at", "-1h"),
        ("get", "claims", "--as-recorded", "5"),
        ("get", "slices", "--watch"),
        ("get", "pools", "--at", "-1h"),
        ("describe", "slice", "w1-slice", "--at", "-1h"),
        ("why", "claim", "team-a/wants", "--at", "-1h"),
        ("why", "pod", "team-a/p", "--at", "-1h"),
    ],
)
async def test_the_past_is_refused(laptop: Run, arguments: tuple[str, ...], tmp_path: Path) -> None:
    refused = await laptop(*arguments, "--kubeconfig", str(tmp_path / "any"))
    assert (refused.code, refused.out) == (2, "")
    assert f"{arguments[-2] if len(arguments) > 3 else arguments[-1]} does not apply" in refused.err
    assert "has no past" in refused.err
    assert not (tmp_path / "home").exists()


async def test_without_a_cluster_there_is_nothing_to_read(laptop: Run, tmp_path: Path) -> None:
    for arguments in (("why", "claim", "a/b"), ("describe", "node", "w1"), ("get", "slices")):
        nothing = await laptop(*arguments)
        assert (nothing.code, "There is no ledger in" in nothing.err) == (1, True)
        assert "KUBECONFIG" in nothing.err
    assert (await laptop("get", "gpudevices")).code == 2
    gone = await laptop("get", "slices", "--kubeconfig", str(tmp_path / "none"))
    assert (gone.code, "There is no kubeconfig at" in gone.err) == (2, True)
    without = await laptop("why", "claim", "a/b", "--no-kube")
    assert (without.code, "--no-kube leaves Kubernetes out" in without.err) == (1, True)
    assert not (tmp_path / "home").exists()


async def allow(client: KubeClient, account: str, *rules: Json) -> None:
    """Let an account do this in the whole cluster."""
    namespace, _, name = account.partition(":")
    await create(client, ROLES, {"metadata": {"name": name}, "rules": list(rules)})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": name}
    await create(client, BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})


def rule(resource: Resource, *verbs: str) -> Json:
    return {"apiGroups": [resource.group], "resources": [resource.plural], "verbs": list(verbs)}


@asynccontextmanager
async def restricted(directory: Path, *rules: Json) -> AsyncIterator[str]:
    """The kubeconfig of an account that may do only this, on a server with the same cluster."""
    async with kube_api(directory, AccountServer()) as api, open_client(api.kubeconfig) as admin:
        await equip(admin)
        await allow(admin, "team-a:dev", *rules)
        yield str(config_file(directory, api.url, "team-a:dev"))


async def test_what_one_may_not_read_is_left_out_and_noted(laptop: Run, tmp_path: Path) -> None:
    async with restricted(tmp_path, rule(RESOURCE_SLICES, "list")) as config:
        table = await present(laptop, "get", "slices", "--kubeconfig", config)
        assert rows(table)[1] == ["w1-slice", DRIVER, "w1", "w1", "2", "0", "2", "0"]
        assert "Not all resourceclaims could be read, so devices that claims of other namespaces hold" in table.err
        described = await present(laptop, "describe", "slice", "w1-slice", "--kubeconfig", config)
        assert "Not all resourceclaims could be read" in described.err
        refused = await laptop("why", "claim", "team-a/wants", "--kubeconfig", config)
        assert (refused.code, "403" in refused.err) == (1, True)


async def test_slices_have_to_be_readable(laptop: Run, tmp_path: Path) -> None:
    async with restricted(tmp_path, rule(PODS, "list")) as config:
        refused = await laptop("get", "slices", "--kubeconfig", config)
        assert (refused.code, "list resourceslices" in refused.err, refused.out) == (1, True, "")


async def test_documents_are_whole_while_messages_go_to_stderr(run: Run) -> None:
    result = await present(run, "get", "slices", "-o", "jsonl")
    assert [orjson.loads(line)["name"] for line in result.out.splitlines()] == ["w1-slice"]


class Older(AccountServer):
    """A cluster without dynamic resource allocation."""

    async def _routed(self, http: web.Request, warnings: list[str]) -> web.StreamResponse:
        if http.path.startswith("/apis/resource.k8s.io"):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return await super()._routed(http, warnings)


async def test_a_cluster_without_slices_has_pools_and_says_so(
    laptop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kube_api(tmp_path, Older()) as api, open_client(api.kubeconfig) as admin:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
        await crds.install(admin, crds.shipped())
        await create_namespace(admin, "team-a")
        await create_pod(admin, "waits", **{UNITS: "2"})
        slices = await present(laptop, "get", "slices")
        assert "The cluster does not serve resourceslices.resource.k8s.io in version v1." in slices.err
        answer = (await present(laptop, "why", "pod", "team-a/waits", "-o", "json")).json()["answer"]
        assert answer == "there is no GPUPool team-a/a, which gpu.deckhouse.io/a stands for"
