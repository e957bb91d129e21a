"""The command line with a kubeconfig and no ledger: the present, read from Kubernetes alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from gpuledger.api.kinds import DEVICE_CLASSES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES, Resource
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.tools.explain.consumers import NO_CONSUMER
from support.cli import Run
from support.kube import kube_api
from support.kube_accounts import AccountServer, config_file
from support.kube_fleet import create
from support.present import DRIVER, Json, create_claim, create_namespace, create_pod, equip, laptop, present, rows

ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding")
UNITS = "gpu.deckhouse.io/a"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line without any server but that of a kubeconfig."""
    return laptop(str(tmp_path / "home"), monkeypatch, capsys)


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[KubeClient]:
    """An administrator of a cluster with two cards on w1, one of them held."""
    async with kube_api(tmp_path) as api, open_client(api.kubeconfig) as admin:
        await equip(admin)
        yield admin


@pytest.fixture
def run(bare: Run, admin: KubeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line with that cluster."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    return bare


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


async def test_a_claim_waits_for_a_pod_that_refers_to_it(run: Run, admin: KubeClient) -> None:
    short = "request gpu: 2 devices requested, 1 available: 1 taken"
    found = (await present(run, "why", "claim", "team-a/wants", "-o", "json")).json()
    assert found["answer"] == f"{NO_CONSUMER}; {short}"
    (option,) = found["claims"][0]["requests"][0]["alternatives"]
    assert option["pools"][0]["reasons"][0]["claims"] == ["team-b/train"]
    await create_pod(admin, "trainer", {"name": "gpu", "resourceClaimName": "wants"})
    page = await present(run, "why", "claim", "team-a/wants")
    assert ["Used", "by", "pods:", "trainer"] in rows(page)
    assert NO_CONSUMER not in page.out
    held = await present(run, "why", "claim", "team-b/train")
    assert f"gpu has {DRIVER}/w1/gpu-0" in held.out
    assert NO_CONSUMER not in held.out


async def test_why_knows_what_else_a_claims_name_may_mean(run: Run, admin: KubeClient) -> None:
    template = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}}
    await create(
        admin, RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": "big", "namespace": "team-a"}, "spec": template}
    )
    await create_pod(admin, "p", {"name": "gpu", "resourceClaimTemplateName": "big"})
    meant = await run("why", "claim", "team-a/big")
    assert (meant.code, "big is a ResourceClaimTemplate" in meant.err) == (1, True)
    assert "Ask `gpuledger why pod team-a/p`" in meant.err
    assert "p is a Pod. Ask `gpuledger why pod team-a/p`" in (await run("why", "claim", "team-a/p")).err
    await create_claim(admin, "p-gpu-x", "team-a", annotations={"resource.kubernetes.io/pod-claim-name": "gpu"})
    made = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}}
    await admin.merge_patch(PODS, "p", made, "team-a", subresource="status")
    assert "Ask about one of them: team-a/p-gpu-x" in (await run("why", "claim", "team-a/big")).err
    notes = (await present(run, "why", "claim", "team-a/p-gpu-x", "-o", "json")).json()["notes"]
    assert any("A template made this claim for the entry gpu" in note for note in notes)
    unknown = await run("why", "claim", "team-a/none")
    assert (unknown.code, "claim 'team-a/none' was not found. List them" in unknown.err) == (1, True)


async def test_a_pod_waits_for_the_claim_of_an_extended_resource(run: Run, admin: KubeClient) -> None:
    await admin.merge_patch(DEVICE_CLASSES, "gpu", {"spec": {"extendedResourceName": "example.com/gpu"}})
    await create_pod(admin, "p", **{"example.com/gpu": "1"})
    answer = (await present(run, "why", "pod", "team-a/p", "-o", "json")).json()["answer"]
    assert answer.startswith("DeviceClass gpu provides example.com/gpu, and the scheduler makes a claim for it")
    meant = await run("why", "claim", "example.com/gpu")
    assert (meant.code, "is an extended resource that DeviceClass gpu provides" in meant.err) == (1, True)
    await create_claim(admin, "p-extended", "team-a")
    made = {"resourceClaimName": "p-extended", "requestMappings": []}
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "gpu"}
    status = {"status": {"extendedResourceClaimStatus": made | {"requestMappings": [mapping]}}}
    await admin.merge_patch(PODS, "p", status, "team-a", subresource="status")
    document = (await present(run, "why", "pod", "team-a/p", "-o", "json")).json()
    assert [one["claim"] for one in document["claims"]] == ["team-a/p-extended"]
    assert document["answer"].startswith("it could be allocated now on node w1")


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
async def test_the_past_is_refused(bare: Run, arguments: tuple[str, ...], tmp_path: Path) -> None:
    refused = await bare(*arguments, "--kubeconfig", str(tmp_path / "any"))
    assert (refused.code, refused.out) == (2, "")
    assert f"{arguments[-2] if len(arguments) > 3 else arguments[-1]} does not apply" in refused.err
    assert "has no past" in refused.err
    assert not (tmp_path / "home").exists()


async def test_without_a_cluster_there_is_nothing_to_read(bare: Run, tmp_path: Path) -> None:
    for arguments in (("why", "claim", "a/b"), ("describe", "node", "w1"), ("get", "slices")):
        nothing = await bare(*arguments)
        assert (nothing.code, "There is no ledger in" in nothing.err) == (1, True)
        assert "KUBECONFIG" in nothing.err
    assert (await bare("get", "gpudevices")).code == 2
    gone = await bare("get", "slices", "--kubeconfig", str(tmp_path / "none"))
    assert (gone.code, "There is no kubeconfig at" in gone.err) == (2, True)
    without = await bare("why", "claim", "a/b", "--no-kube")
    assert (without.code, "--no-kube leaves Kubernetes out" in without.err) == (1, True)
    assert not (tmp_path / "home").exists()


async def allow(admin: KubeClient, account: str, *rules: Json) -> None:
    """Let an account do this in the whole cluster."""
    namespace, _, name = account.partition(":")
    await create(admin, ROLES, {"metadata": {"name": name}, "rules": list(rules)})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": name}
    await create(admin, BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})


def rule(resource: Resource, *verbs: str) -> Json:
    return {"apiGroups": [resource.group], "resources": [resource.plural], "verbs": list(verbs)}


@asynccontextmanager
async def restricted(directory: Path, *rules: Json) -> AsyncIterator[str]:
    """The kubeconfig of an account that may do only this, on a server with the same cluster."""
    async with kube_api(directory, AccountServer()) as api, open_client(api.kubeconfig) as admin:
        await equip(admin)
        await allow(admin, "team-a:dev", *rules)
        yield str(config_file(directory, api.url, "team-a:dev"))


async def test_what_one_may_not_read_is_left_out_and_noted(bare: Run, tmp_path: Path) -> None:
    async with restricted(tmp_path, rule(RESOURCE_SLICES, "list")) as config:
        table = await present(bare, "get", "slices", "--kubeconfig", config)
        assert rows(table)[1] == ["w1-slice", DRIVER, "w1", "w1", "2", "0", "2", "0"]
        assert "Not all resourceclaims could be read, so devices that claims of other namespaces hold" in table.err
        described = await present(bare, "describe", "slice", "w1-slice", "--kubeconfig", config)
        assert "Not all resourceclaims could be read" in described.err
        refused = await bare("why", "claim", "team-a/wants", "--kubeconfig", config)
        assert (refused.code, "403" in refused.err) == (1, True)


async def test_slices_have_to_be_readable(bare: Run, tmp_path: Path) -> None:
    async with restricted(tmp_path, rule(PODS, "list")) as config:
        refused = await bare("get", "slices", "--kubeconfig", config)
        assert (refused.code, "list resourceslices" in refused.err, refused.out) == (1, True, "")


class Older(AccountServer):
    """A cluster without version 1 of dynamic resource allocation."""

    async def _routed(self, http: web.Request, warnings: list[str]) -> web.StreamResponse:
        if http.path.startswith("/apis/resource.k8s.io/v1/"):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return await super()._routed(http, warnings)


async def test_a_cluster_without_slices_has_pools_and_says_so(
    bare: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kube_api(tmp_path, Older()) as api, open_client(api.kubeconfig) as admin:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
        await crds.install(admin, crds.shipped())
        await create_namespace(admin, "team-a")
        await create_pod(admin, "waits", **{UNITS: "2"})
        slices = await present(bare, "get", "slices")
        assert "The cluster does not serve resourceslices.resource.k8s.io in version v1." in slices.err
        answer = (await present(bare, "why", "pod", "team-a/waits", "-o", "json")).json()["answer"]
        assert answer == "there is no GPUPool team-a/a, which gpu.deckhouse.io/a stands for"
