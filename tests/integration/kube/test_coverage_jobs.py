"""The Job that compares labels starts by itself: by the chart's rights on a cluster that holds accounts to them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from gpuledger.api.kinds import EVENTS, JOBS, NFD_COVERAGE, NODE_FEATURE_RULES, NODES, Resource
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, Object, open_client
from gpuledger.events.node import NodeInventoryChanged
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import COVERAGE_NAMESPACE
from support.chart import NAME, NAMESPACE, WITH_SECRET, Manifests, needs_helm, render
from support.chart_cluster import Cluster
from support.gpu_states import INCOMPLETE
from support.inventory_decisions import MANAGED, Decided
from support.kube_accounts import Permission, config_file
from support.kube_fleet import create, label_like_nfd
from support.rights import beyond, granted, unused
from support.statuswriting import QUICK, status_writer
from support.waiting import eventually

pytestmark = needs_helm

CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", namespaced=True)
NODE = "w1"
SETTINGS = replace(QUICK, coverage_namespace=NAMESPACE, coverage_check_s=0.05)
IS_INCOMPLETE = (NODE, NodeInventoryChanged(present=True, conditions=(INCOMPLETE, MANAGED)))
FIRST, SECOND = f"{NFD_COVERAGE}-1", f"{NFD_COVERAGE}-2"

LISTED = Permission("list", "batch", "jobs", "", NAMESPACE)


@pytest.fixture
def decided(ledger: JetStreamLedger) -> Decided:
    return Decided(ledger)


@pytest.fixture
async def made(cluster: Cluster) -> Manifests:
    """The release, without the jobs of its hooks, and a node whose labels are wrong."""
    await crds.install(cluster.client, crds.shipped())
    await create(cluster.client, NODE_FEATURE_RULES, crds.node_feature_rule())
    await label_like_nfd(cluster.client, NODE)
    labels = {"gpu.deckhouse.io/device-count": "7"}
    await cluster.client.merge_patch(NODES, NODE, {"metadata": {"labels": labels}})
    installed = await cluster.helm("install", WITH_SECRET, "--no-hooks")
    assert installed.code == 0, installed
    return render(WITH_SECRET)


@asynccontextmanager
async def writing(cluster: Cluster, decided: Decided, database_url: str, directory: Path) -> AsyncIterator[None]:
    """The status writer as the services' account."""
    config = config_file(directory, cluster.client.url, f"{NAMESPACE}:{NAME}")
    async with open_client(config) as ours, status_writer(decided.ledger, database_url, ours, SETTINGS):
        yield


async def put_in_readiness(client: KubeClient, name: str) -> None:
    """Make the Job of the CronJob, as its controller does by its schedule."""
    (kept,) = (await client.list(CRON_JOBS)).items
    template, owner = kept["spec"]["jobTemplate"], kept["metadata"]
    reference = {"apiVersion": CRON_JOBS.api_version, "kind": CRON_JOBS.kind, "controller": True}
    reference |= {"name": owner["name"], "uid": owner["uid"]}
    metadata = template["metadata"] | {"name": name, "namespace": NAMESPACE, "ownerReferences": [reference]}
    await create(client, JOBS, {"metadata": metadata, "spec": template["spec"]})


async def jobs(client: KubeClient) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in (await client.list(JOBS)).items}


async def are_jobs(client: KubeClient, names: set[str]) -> bool:
    return set(await jobs(client)) == names


async def has_ended(client: KubeClient, name: str) -> bool:
    return "Failed" in str((await jobs(client))[name].get("status"))


async def notes(client: KubeClient) -> list[str]:
    found = [one for one in (await client.list(EVENTS)).items if one["note"].startswith("The Job ")]
    assert all((one["reason"], one.get("series")) == ("GPUNodeLabelsChecked", None) for one in found)
    return [one["note"] for one in found]


async def has_notes(client: KubeClient, *names: str) -> bool:
    found = await notes(client)
    return len(found) == len(names) and all(any(f"logs job/{name}`" in note for note in found) for name in names)


async def has_looked(cluster: Cluster) -> bool:
    return LISTED in cluster.requested_by(NAME)


async def looks_again(cluster: Cluster, times: int = 3) -> None:
    """Return when the status writer has listed the Jobs so often."""
    for _ in range(times):
        cluster.requested_by(NAME).discard(LISTED)
        await eventually(partial(has_looked, cluster))


async def stays_incomplete(decided: Decided) -> None:
    """The node's inventory has been incomplete for six minutes."""
    await decided.record(IS_INCOMPLETE, at=system_clock() - timedelta(minutes=6))


async def test_the_waiting_job_runs_once_a_node_stays_incomplete_and_its_result_is_an_event(
    cluster: Cluster, made: Manifests, decided: Decided, database_url: str, tmp_path: Path
) -> None:
    await put_in_readiness(cluster.client, FIRST)
    await stays_incomplete(decided)
    async with writing(cluster, decided, database_url, tmp_path):
        await eventually(partial(has_ended, cluster.client, FIRST))
        ran = cluster.kubelet.ran[FIRST]
        assert ran.code == 1
        assert "gpu.deckhouse.io/device-count" in ran.log
        await eventually(partial(has_notes, cluster.client, FIRST))
        await put_in_readiness(cluster.client, SECOND)
        await looks_again(cluster)
        assert await has_notes(cluster.client, FIRST)
    async with writing(cluster, decided, database_url, tmp_path):
        await looks_again(cluster)
        assert await has_notes(cluster.client, FIRST)
    assert set(cluster.kubelet.ran) == {FIRST}
    rules = granted(made, f"{NAME}-coverage")
    assert rules == {Permission(verb, "batch", "jobs", "", NAMESPACE) for verb in ("list", "patch")}
    requested = {one for one in cluster.requested_by(NAME) if one.resource == "jobs"}
    assert (beyond(requested, rules), unused(requested, rules)) == (set(), set())
    account = f"{NAME}-nfd-coverage"
    assert beyond(cluster.requested_by(account), granted(made, account)) == set()
    assert cluster.server.refused == []


async def test_the_job_that_waits_goes_with_an_upgrade_of_its_pod_and_with_the_release(
    cluster: Cluster, made: Manifests
) -> None:
    await put_in_readiness(cluster.client, FIRST)
    same = await cluster.helm("upgrade", {**WITH_SECRET, "replicas": 3}, "--no-hooks")
    assert (same.code, set(await jobs(cluster.client))) == (0, {FIRST})
    other = {**WITH_SECRET, "image": {**WITH_SECRET["image"], "tag": "2"}}
    assert (await cluster.helm("upgrade", other, "--no-hooks")).code == 0
    await eventually(partial(are_jobs, cluster.client, set()))
    await put_in_readiness(cluster.client, SECOND)
    assert (await cluster.helm("uninstall", None, "--no-hooks")).code == 0
    await eventually(partial(are_jobs, cluster.client, set()))


def test_without_a_job_that_waits_nobody_looks_for_one() -> None:
    made = render({**WITH_SECRET, "nfdCoverage": {"standbySchedule": ""}})
    assert made.names("CronJob") == set()
    assert f"{NAME}-coverage" not in made.names("Role")
    (container,) = made.one("Deployment")["spec"]["template"]["spec"]["containers"]
    assert COVERAGE_NAMESPACE not in {one["name"] for one in container["env"]}
