"""The commands of the pages, typed in their order as a reader types them: real processes, servers, kubectl and helm."""

import csv
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from gpuledger.tools.importers.sample import write_titan_sample
from support.chart_cluster import cluster_for_helm
from support.doc_pages import commands
from support.doc_shell import Reader
from support.doc_stories import CHART, FIRST_STEPS, KUBE_COMMANDS, LAB, NODE_AGENT, POOLS, STORIES, Story, commands_of
from support.kube_server import free_ports
from support.up import running_up

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

SEED, DEVICES = 2014, 1_000
SERIAL = "0323812008256"
"""The card whose life the README shows; the file that it is from is not ours to keep."""


async def follow(story: Story, folder: Path, replacing: dict[str, str] | None = None, **variables: str) -> None:
    async with Reader(folder, replacing or {}, variables).sitting() as reader:
        await reader.tell(story, commands_of(story, commands()))


def test_every_story_is_one_of_these() -> None:
    assert STORIES == (FIRST_STEPS, LAB, POOLS, NODE_AGENT, KUBE_COMMANDS, CHART)


async def test_first_steps(tmp_path: Path) -> None:
    with (tmp_path / "titan_gc_full.csv").open("w", newline="") as file:
        write_titan_sample(file, seed=SEED, devices=DEVICES)
        csv.writer(file).writerow((SERIAL, "c1-0c0s1n0", "2014-02-01 00:00:00", "2015-02-01 00:00:00", "", "TRUE", ""))
    with running_up(tmp_path / "fleet", "--no-kube"):  # otherwise every command starts the servers, and stops them
        await follow(FIRST_STEPS, tmp_path, {"1/40000": "1/400"})


async def test_the_lab(tmp_path: Path) -> None:
    await follow(LAB, tmp_path)


async def test_pools(tmp_path: Path) -> None:
    pool = {"apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "ClusterGPUPool", "metadata": {"name": "training"}}
    spec = {"resource": {"unit": "Card"}, "deviceSelector": {"include": {"products": ["NVIDIA A100"]}}}
    (tmp_path / "new.yaml").write_text(yaml.safe_dump({**pool, "spec": spec}))
    await follow(POOLS, tmp_path)


async def test_an_agent_without_a_gpu(tmp_path: Path) -> None:
    (port,) = free_ports(tmp_path / "ports", 1)
    await follow(NODE_AGENT, tmp_path, {"127.0.0.1:9500": f"127.0.0.1:{port}"})
