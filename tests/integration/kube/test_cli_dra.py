"""Slices, nodes' devices and claims on the command line, and whose claims it names."""

import asyncio
import os
import shutil
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gpuledger.api.kinds import NAMESPACES, PODS, RESOURCE_SLICE_STATUSES, Resource
from gpuledger.cli.times import format_time
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.crds import install, shipped
from gpuledger.events.claim import ClaimReleased
from gpuledger.events.settings import SettingsChanged
from gpuledger.events.slice import DeviceCapacity, DeviceClassDefined, SliceDevice, Taint, TaintRuleSet
from gpuledger.local.kubeapi.errors import ApiError
from support import servers
from support.cli import Cli, Result, Run, aside
from support.dra_explanations import DRIVER, WATCHERS, devices, holding, node, requesting, slice_of, wish
from support.events import RecordedFact, SubjectFact, hour
from support.kube import kube_api
from support.kube_accounts import ADMIN, AccountServer, config_file, let_get
from support.kube_fleet import create, create_account, publish
from support.kube_server import KubeServer
from support.paths import ROOT

CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding")
MODEL = f'device.attributes["{DRIVER}"].model'
GIB = {"memory": DeviceCapacity(value="80Gi")}
CLASSES: list[SubjectFact] = [("gpu", DeviceClassDefined(uid="u", selectors=(f'device.driver == "{DRIVER}"',)))]
FACTS: list[SubjectFact] = [
    *CLASSES,
    node("w1"),
    node("w2"),
    slice_of("w1", *devices("gpu-0", "gpu-1", "gpu-2", "gpu-3", attributes={"model": "A100"})),
    slice_of("w2", SliceDevice(name="gpu-0", shareable=True, capacity=GIB, attributes={"model": "H200"})),
    slice_of("half", *devices("d"), slice_count=2, name="half-slice"),
    ("rule", TaintRuleSet(uid="u", taint=Taint(key="xid", value="79", effect="NoExecute"), pool="w1", device="gpu-3")),
    holding("team-a/train", "w1/gpu-0"),
    holding("team-b/infer", "w1/gpu-1"),
    holding("team-b/share", "w2/gpu-0", share="s1", consumed={"memory": "20Gi"}),
    (
        "team-a/wants",
        requesting(wish(count=2, selectors=(f'{MODEL} == "A100"',))).model_copy(update={"owner": "trainer"}),
    ),
    ("team-b/gone", requesting(wish())),
    ("team-b/gone", ClaimReleased(uid="u-asking")),
]
BEFORE_CLAIMS, WHILE_GONE_WAS_THERE = hour(6.5).isoformat(), hour(11.5).isoformat()


def numbered_facts(facts: list[SubjectFact]) -> list[RecordedFact]:
    return [RecordedFact(WATCHERS, subject, number, data) for number, (subject, data) in enumerate(facts)]


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers with the ledger and a migrated database."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        asyncio.run(publish(nats.url, numbered_facts(FACTS)))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


@pytest.fixture
def run(
    urls: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """The command line on those servers, without a cluster."""
    for name, value in {**urls, "NO_COLOR": "1", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    return aside(Cli(capsys))


class Reviewing(AccountServer):
    """Counts the reviews of access that it is asked for; with `is_silent` it answers none of them."""

    def __init__(self, *, is_silent: bool = False) -> None:
        super().__init__()
        self.reviews = 0
        self._is_silent = is_silent

    async def _routed(self, http: web.Request, warnings: list[str]) -> web.StreamResponse:
        if http.path.endswith("selfsubjectaccessreviews"):
            self.reviews += 1
            if self._is_silent:
                raise ApiError(403, "Forbidden", "nobody is told")
        return await super()._routed(http, warnings)


@asynccontextmanager
async def accounts(directory: Path) -> AsyncIterator[tuple[Reviewing, str]]:
    """A server that holds accounts against RBAC, in which `team-a:dev` may read the claims of its own namespace."""
    server = Reviewing()
    async with kube_api(directory, server) as api, open_client(api.kubeconfig) as admin:
        for namespace in ("team-a", "team-b"):
            await create(admin, NAMESPACES, {"metadata": {"name": namespace}})
        await let_get(admin, "team-a:dev", ("resource.k8s.io", "resourceclaims"))
        yield server, api.url


def shown(result: Result) -> list[list[str]]:
    """The words of each line."""
    assert result.code == 0, result.err
    return [line.split() for line in result.out.splitlines()]


async def test_a_slice_is_described_from_the_ledger_alone(run: Run) -> None:
    page = shown(await run("describe", "slice", "w1-slice", "--no-kube"))
    for line in (
        ["Driver:", DRIVER],
        ["Node", "Name:", "w1"],
        ["Status", "from:", "the", "ledger"],
        ["Total", "Devices:", "4"],
        ["Allocated", "Devices:", "2"],
        ["Available", "Devices:", "1"],
        ["State", "Reason:", "Tainted"],
        ["Claim", "Namespace:", "team-b"],
        ["Claim", "Name:", "infer"],
        ["model:", "A100"],
        ["Type:", "Complete"],
    ):
        assert line in page
    assert [
        "Claims",
        "shown:",
        "all,",
        "as",
        "the",
        "database",
        "has",
        "them;",
        "Kubernetes",
        "was",
        "not",
        "asked",
    ] in page
    half = await run("describe", "resourceslice", "half-slice", "--no-kube")
    assert "1 of 2 slices of generation 1 are there." in half.out


async def test_shares_are_described_with_their_amounts(run: Run) -> None:
    page = shown(await run("describe", "slice", "slice/w2-slice", "--no-kube"))
    assert page.count(["memory:", "80Gi"]) == 3  # of the specification, of the device, and in all
    assert page.count(["memory:", "60Gi"]) == 2
    assert page.count(["memory:", "20Gi"]) == 2
    assert ["State:", "PartiallyAllocated"] in page


async def test_a_slice_is_described_as_it_was(run: Run) -> None:
    page = shown(await run("describe", "slice", "w1-slice", "--at", BEFORE_CLAIMS))
    assert ["Available", "Devices:", "3"] in page
    assert ["Allocated", "Devices:", "0"] in page
    assert any(line[:5] == ["Status", "from:", "the", "ledger,", "at"] for line in page)
    early = await run("describe", "slice", "w1-slice", "--at", hour(1).isoformat())
    assert (early.code, "'w1-slice' was not found" in early.err) == (1, True)
    assert (await run("describe", "node", "w1", "--at", "-1h")).code == 2


async def test_the_status_of_the_api_server_comes_first(run: Run, kube: KubeServer) -> None:
    async with open_client(kube.kubeconfig) as client:
        config = ("--kubeconfig", str(kube.kubeconfig))
        page = shown(await run("describe", "slice", "w1-slice", *config))
        assert ["Status", "from:", "the", "ledger;", "Kubernetes", "has", "no", "such", "object"] in page
        assert any(line[:3] == ["Claims", "shown:", "all,"] and "everywhere" in line for line in page)
        await install(client, shipped())
        await create(client, RESOURCE_SLICE_STATUSES, _status("w1-slice"))
        status = {"summary": {"totalDevices": 1, "availableDevices": 1}, "observedGeneration": 7}
        await client.merge_patch(RESOURCE_SLICE_STATUSES, "w1-slice", {"status": status}, subresource="status")
        page = shown(await run("describe", "slice", "w1-slice", *config))
        assert ["Status", "from:", "Kubernetes"] in page
        assert ["Observed", "Generation:", "7"] in page


def _status(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"sliceName": name, "sliceUID": "u", "driver": DRIVER, "pool": "w1"},
    }


async def _let_read_statuses(admin: KubeClient, group: str) -> None:
    rules = [
        {"apiGroups": [RESOURCE_SLICE_STATUSES.group], "resources": [RESOURCE_SLICE_STATUSES.plural], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ]
    metadata = {"name": "statuses"}
    await create(admin, CLUSTER_ROLES, {"metadata": metadata, "rules": rules})
    role = {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": "statuses"}
    subjects = [{"apiGroup": CLUSTER_ROLES.group, "kind": "Group", "name": group}]
    await create(admin, CLUSTER_ROLE_BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": subjects})


async def test_a_nodes_devices_are_described(run: Run) -> None:
    page = shown(await run("describe", "node", "w1", "--no-kube"))
    section = page[page.index(["DRA", "Resources:"]) :]
    for line in (
        ["Driver:", DRIVER],
        ["Pool:", "w1"],
        ["Total", "Devices:", "4"],
        ["gpu-0:"],
        ["Status:", "Allocated"],
        ["Allocated", "To:", "team-a/train"],
        ["Status:", "Unavailable", "(Tainted)"],
        ["model:", "A100"],
    ):
        assert line in section
    none = shown(await run("describe", "node", "half", "--no-kube"))
    assert ["Pool:", "half"] in none


async def test_claims_are_named_only_where_one_may_read_them(run: Run, tmp_path: Path) -> None:
    async with accounts(tmp_path) as (server, url):
        config = ("--kubeconfig", str(config_file(tmp_path, url, "team-a:dev")))
        result = await run("describe", "node", "w1", *config)
        page = shown(result)
        assert ["Allocated", "To:", "team-a/train"] in page
        assert ["Status:", "Allocated", "(1", "claim)"] in page
        assert "team-b" not in result.out
        assert server.reviews == 3  # for all namespaces, and for each of the two
        described = await run("describe", "slice", "w2-slice", *config)
        assert "PartiallyAllocated (1 claim)" in described.out
        assert "20Gi" in described.out
        assert "team-b" not in described.out
        answer = await run("why", "claim", "team-a/wants", *config)
        assert "2 taken by team-a/train and (1 claim)" in answer.out
        assert "team-b" not in answer.out
        refused = await run("why", "claim", "team-b/share", *config)
        assert (refused.code, refused.out) == (1, "")
        assert "You may not read ResourceClaims in namespace 'team-b'" in refused.err


async def test_a_server_that_answers_no_reviews_has_nothing_named(run: Run, tmp_path: Path) -> None:
    async with kube_api(tmp_path, Reviewing(is_silent=True)) as api:
        result = await run("describe", "slice", "w1-slice", "--kubeconfig", str(api.kubeconfig))
        assert "none, because Kubernetes did not report what you may read" in result.out
        assert "train" not in result.out
        assert "Allocated (1 claim)" in result.out


async def test_a_status_that_names_no_claims_is_read_with_those_that_one_may_read(run: Run, tmp_path: Path) -> None:
    """The setting claimReferences is about the object, which more people may read than the claims."""
    unnamed = [{"claimNamespace": "", "claimName": "", "claimUID": ""}]
    devices_held = [{"name": name, "state": "Allocated", "allocations": unnamed} for name in ("gpu-0", "gpu-1")]
    async with accounts(tmp_path) as (server, url), open_client(config_file(tmp_path, url, ADMIN)) as admin:
        await install(admin, shipped())
        await create(admin, RESOURCE_SLICE_STATUSES, _status("w1-slice"))
        patch = {"status": {"summary": {"totalDevices": 2}, "devices": devices_held}}
        await admin.merge_patch(RESOURCE_SLICE_STATUSES, "w1-slice", patch, subresource="status")
        await _let_read_statuses(admin, "system:serviceaccounts:team-a")
        config = ("--kubeconfig", str(config_file(tmp_path, url, "team-a:dev")))
        page = await run("describe", "slice", "w1-slice", *config)
        assert ["Status", "from:", "Kubernetes"] in shown(page)
        assert ["Claim", "Name:", "train"] in shown(page)
        assert "Allocated (1 claim)" in page.out
        assert "team-b" not in page.out
        assert server.reviews == 3


async def test_while_the_feature_gate_is_closed_pages_and_tables_say_since_when_kubernetes_is_stale(
    run: Run, database_url: str, kube: KubeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: SubjectFact = ("gpu-control-plane", SettingsChanged(dra_availability=False))
    since = f"stale since {format_time(hour(len(FACTS)))}, because the feature gate DRAResourceAvailabilityVisibility"
    config = ("--kubeconfig", str(kube.kubeconfig))
    with servers.nats_server() as nats:
        await publish(nats.url, numbered_facts([*FACTS, closed]))
        monkeypatch.setenv("NATS_URL", nats.url)
        monkeypatch.setenv("DATABASE_URL", database_url)
        assert (await run("migrate")).code == 0
        async with open_client(kube.kubeconfig) as client:
            await install(client, shipped())
            await create(client, RESOURCE_SLICE_STATUSES, _status("w1-slice"))
            frozen = {"status": {"summary": {"totalDevices": 77}, "observedGeneration": 7}}
            await client.merge_patch(RESOURCE_SLICE_STATUSES, "w1-slice", frozen, subresource="status")
        for arguments in (("slice", "w1-slice"), ("node", "w1")):
            page = await run("describe", *arguments, *config)
            assert since in page.out
            assert ["Total", "Devices:", "4"] in shown(page)
            assert ["Total", "Devices:", "77"] not in shown(page)
        for kind in ("slices", "slicepools"):
            table = await run("get", kind, "-o", "json")
            assert (since in table.err, len(table.json())) == (True, 3)
            assert "stale" not in (await run("get", kind, "--at", hour(9).isoformat())).err
        assert "stale" not in (await run("get", "claims")).err


async def test_why_a_claim_waits(run: Run) -> None:
    result = await run("why", "claim", "team-a/wants", "--no-kube")
    page = shown(result)
    assert "request gpu: 2 devices requested, 1 available: 2 taken, 1 tainted" in result.out
    (row,) = [line for line in page if line[:2] == [f"{DRIVER}/w1", "w1"]]
    assert row[2:5] == ["4", "4", "1"]
    assert "1 tainted (xid=79:NoExecute)" in " ".join(row)
    document = (await run("why", "claim", "wants", "-n", "team-a", "--no-kube", "-o", "json")).json()
    (option,) = document["claims"][0]["requests"][0]["alternatives"]
    assert (option["asked"], option["available"], option["matching"], option["devices"]) == (2, 1, 4, 6)
    reasons = {one["reason"]: one for pool in option["pools"] for one in pool["reasons"]}
    assert reasons["Taken"]["claims"] == ["team-a/train", "team-b/infer"]
    assert "no such key: model" in reasons["SelectorFails"]["detail"]
    assert (await run("why", "claim", "team-a/wants", "--no-kube", "-o", "yaml")).out.startswith("subject: claim team")


async def test_why_a_claim_waited(run: Run) -> None:
    result = await run("why", "claim", "team-b/gone", "--at", WHILE_GONE_WAS_THERE, "--no-kube")
    assert "it could have been allocated at 2026-01-01T11:30:00Z on node w1" in " ".join(result.out.split())
    now = await run("why", "claim", "team-b/gone", "--no-kube")
    assert (now.code, "claim 'team-b/gone' was not found" in now.err) == (1, True)
    assert (await run("why", "claim", "a/b/c", "--no-kube")).code == 2


async def test_an_allocated_claim_shows_its_devices(run: Run) -> None:
    result = await run("why", "claim", "team-b/infer", "--no-kube")
    assert f"it is allocated since 2026-01-01T08:00:00Z: r has {DRIVER}/w1/gpu-1" in result.out
    (held,) = (await run("why", "claim", "team-b/infer", "--no-kube", "-o", "json")).json()["claims"][0]["allocation"]
    assert (held["device"], held["node"], held["since"]) == ("gpu-1", "w1", "2026-01-01T08:00:00Z")


async def test_from_a_node_other_nodes_are_not_seen(run: Run) -> None:
    document = (await run("why", "claim", "team-a/wants", "--no-kube", "--node", "w2", "-o", "json")).json()
    assert document["answer"] == "request gpu: 2 devices requested, none of 1 matches"


async def test_why_a_pod_waits(run: Run, kube: KubeServer) -> None:
    config = ("--kubeconfig", str(kube.kubeconfig))
    async with open_client(kube.kubeconfig) as client:
        await create(client, NAMESPACES, {"metadata": {"name": "team-a"}})
        containers = [{"name": "c", "image": "none"}]
        claims = [{"name": "gpu", "resourceClaimName": "wants"}, {"name": "mine", "resourceClaimTemplateName": "t"}]
        spec = {"containers": containers, "resourceClaims": claims, "serviceAccountName": "default"}
        await create_account(client, "team-a")
        await create(client, PODS, {"metadata": {"name": "p", "namespace": "team-a"}, "spec": spec})
    document = (await run("why", "pod", "team-a/p", *config, "-o", "json")).json()
    assert document["answer"] == "request gpu: 2 devices requested, 1 available: 2 taken, 1 tainted"
    assert [(one["claim"], one["phase"]) for one in document["claims"]] == [
        ("team-a/wants", "Pending"),
        ("mine", "Missing"),
    ]
    unknown = await run("why", "pod", "team-a/nobody", *config)
    assert (unknown.code, "pod 'team-a/nobody' was not found" in unknown.err) == (1, True)


async def test_without_kubernetes_a_pods_claims_are_those_made_for_it(run: Run) -> None:
    document = (await run("why", "pod", "team-a/trainer", "--no-kube", "-o", "json")).json()
    assert [one["claim"] for one in document["claims"]] == ["team-a/wants"]
    assert "created for the pod" in document["notes"][0]
    past = await run("why", "pod", "team-a/trainer", "--at", hour(10).isoformat(), "-o", "json")
    assert past.json()["moment"] == "2026-01-01T10:00:00Z"


@pytest.fixture
def plugin_path(tmp_path: Path) -> str:
    """A path with the programs that the package installs, written as installers write them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for name, entry in project["project"]["scripts"].items():
        module, _, function = entry.partition(":")
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        program.chmod(0o755)
    return f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
async def test_kubectl_runs_it_as_a_plugin(run: Run, kube: KubeServer, plugin_path: str) -> None:
    async def kubectl(*arguments: str) -> tuple[int, str]:
        environ = {**os.environ, "PATH": plugin_path, "PYTHONPATH": os.pathsep.join(sys.path)}
        environ["KUBECONFIG"] = str(kube.kubeconfig)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "kubectl", *arguments, env=environ, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    assert (await run("version")).out.splitlines()[0] in (await kubectl("gpuledger", "version"))[1]
    code, out = await kubectl("gpuledger", "why", "claim", "team-a/wants")
    assert (code, "2 devices requested, 1 available" in out, "you may read claims everywhere" in out) == (0, True, True)
    assert "kubectl-gpuledger" in (await kubectl("plugin", "list"))[1]
    assert (await kubectl("gpuledger", "why", "claim", "team-a/none"))[0] == 1
    code, out = await kubectl("__complete", "gpuledger", "why", "cl")
    assert out.splitlines()[:2] == ["claim", ":4"]
