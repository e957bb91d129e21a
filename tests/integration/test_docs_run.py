"""The commands of the pages, typed in their order as a reader types them: real processes, servers, kubectl and helm."""

import csv
import shutil
from functools import partial
from pathlib import Path

import pytest
import yaml

from gpuledger.api.kinds import NAMESPACES
from gpuledger.edge.kube.client import KubeClient
from gpuledger.tools.importers.sample import write_titan_sample
from support.chart import NAMESPACE, needs_helm
from support.chart_cluster import cluster_for_helm
from support.doc_pages import commands
from support.doc_shell import Reader
from support.doc_stories import (
    CHART,
    FIRST_STEPS,
    INCIDENT,
    KUBE_COMMANDS,
    LAB,
    MACHINE_CONFIG,
    NODE_AGENT,
    POOLS,
    PREFLIGHT,
    SHARES,
    STORIES,
    Story,
    commands_of,
)
from support.kube_fleet import create
from support.paths import ROOT
from support.ports import free_ports
from support.up import running_up
from support.waiting import eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

EXAMPLES = {"examples/": f"{ROOT / 'examples'}/"}
SEED, DEVICES = 2014, 1_000
SERIAL = "0323812008256"
"""The card whose life the README shows; the file that it is from is not ours to keep."""


async def follow(story: Story, folder: Path, replacing: dict[str, str] | None = None, **variables: str) -> None:
    async with Reader(folder, replacing or {}, variables).reading() as reader:
        await reader.tell(story, commands_of(story, commands()))


def test_every_story_is_one_of_these() -> None:
    assert STORIES == (
        FIRST_STEPS,
        LAB,
        POOLS,
        SHARES,
        NODE_AGENT,
        INCIDENT,
        PREFLIGHT,
        MACHINE_CONFIG,
        KUBE_COMMANDS,
        CHART,
    )


async def test_first_steps(tmp_path: Path) -> None:
    with (tmp_path / "titan_gc_full.csv").open("w", newline="") as file:
        write_titan_sample(file, seed=SEED, devices=DEVICES)
        csv.writer(file).writerow((SERIAL, "c1-0c0s1n0", "2014-02-01 00:00:00", "2015-02-01 00:00:00", "", "TRUE", ""))
    with running_up(tmp_path / "fleet", "--no-kube"):  # otherwise every command starts the servers, and stops them
        await follow(FIRST_STEPS, tmp_path, {"1/40000": "1/400", **EXAMPLES})


async def test_the_lab(tmp_path: Path) -> None:
    await follow(LAB, tmp_path, EXAMPLES)


async def test_pools(tmp_path: Path) -> None:
    pool = {"apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "ClusterGPUPool", "metadata": {"name": "training"}}
    spec = {"resource": {"unit": "Card"}, "deviceSelector": {"include": {"products": ["NVIDIA A100"]}}}
    (tmp_path / "new.yaml").write_text(yaml.safe_dump({**pool, "spec": spec}))
    await follow(POOLS, tmp_path)


async def test_shares_of_a_card(tmp_path: Path) -> None:
    await follow(SHARES, tmp_path)


async def test_an_agent_without_a_gpu(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    await follow(NODE_AGENT, tmp_path, {"127.0.0.1:9500": f"127.0.0.1:{port}"})


async def test_an_incident(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    await follow(INCIDENT, tmp_path, {"127.0.0.1:9501": f"127.0.0.1:{port}", **EXAMPLES})


async def test_a_rollout_of_machine_configuration(tmp_path: Path) -> None:
    await follow(MACHINE_CONFIG, tmp_path, EXAMPLES)


async def test_checks_before_a_workload(tmp_path: Path) -> None:
    await follow(PREFLIGHT, tmp_path)


KUBE_COMMANDS_OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: team-a}
---
apiVersion: v1
kind: Node
metadata: {name: w1}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: w1-gpu}
spec:
  driver: gpu.example.com
  nodeName: w1
  pool: {name: worker-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: train, namespace: team-a}
spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: gpu, count: 2}}]}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: team-a}
---
apiVersion: v1
kind: Pod
metadata: {name: trainer-0, namespace: team-a}
spec:
  containers: [{name: main, image: busybox, resources: {claims: [{name: gpus}]}}]
  resourceClaims: [{name: gpus, resourceClaimName: train}]
"""


async def test_commands_that_read_kubernetes(tmp_path: Path) -> None:
    with running_up(tmp_path / "data") as up:
        config = yaml.safe_load((up.data_dir / "kubeconfig").read_text())
        config["contexts"].append({**config["contexts"][0], "name": "staging"})
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        (tmp_path / "objects.yaml").write_text(KUBE_COMMANDS_OBJECTS)
        without = {"KUBECONFIG": str(kubeconfig), "GPULEDGER_DATA_DIR": str(tmp_path / "none")}
        async with Reader(tmp_path, {}, without).reading() as reader:
            assert (await reader.type("kubectl apply -f objects.yaml")).code == 0
            shown = commands_of(KUBE_COMMANDS, commands())
            alone = [command for command in shown if command.section == "Without a ledger"]
            await reader.tell(KUBE_COMMANDS, alone)
            assert not (tmp_path / "none").exists(), "an empty ledger was started"
        async with Reader(tmp_path, {}, without | {"GPULEDGER_DATA_DIR": str(up.data_dir)}).reading() as reader:
            await reader.tell(KUBE_COMMANDS, shown[len(alone) :])


CHART_FILES = {"gpu-01.creds": "one", "gpu-02.creds": "two", "callout.login": "user: u\npassword: p\n"}


@needs_helm
async def test_the_chart(tmp_path: Path, clean_nats_url: str, database_url: str) -> None:
    """helm and kubectl as the page has them; jobs run, and of the rest the API server holds the objects."""
    for name, text in CHART_FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    replacing = {
        "nats://USER:PASSWORD@nats.example:4222": clean_nats_url,
        "postgresql://USER:PASSWORD@postgres.example:5432/gpuledger": database_url,
    }
    async with cluster_for_helm(tmp_path) as cluster:
        await cluster.client.delete(NAMESPACES, NAMESPACE)
        for name in ("ml-team-a", "ml-team-b"):
            await create(cluster.client, NAMESPACES, {"metadata": {"name": name}})
        await eventually(partial(is_gone, cluster.client, NAMESPACE))
        async with Reader(tmp_path, replacing, {"KUBECONFIG": str(cluster.config)}).reading() as reader:
            shown = commands_of(CHART, commands())
            await reader.tell(CHART, shown)
        ran = cluster.kubelet.ran
        assert {ran[f"gpuledger-{job}"].code for job in ("migrate", "crds", "uninstall")} == {0}, ran
        assert "coverage-now" in ran
        assert cluster.server.refused == []


async def is_gone(client: KubeClient, name: str) -> bool:
    return name not in {one["metadata"]["name"] for one in (await client.list(NAMESPACES)).items}
