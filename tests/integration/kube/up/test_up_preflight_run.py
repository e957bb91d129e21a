"""Preflight checks from the pod's creation to its node, with real parts: `gpuledger up`, a node's agent, processes.

A pod is created, the webhook adds the checks, and these run as the pod says. Only the tools that need GPUs are
programs that print what those print on nodes.
"""

import asyncio
import fcntl
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpuledger.agent.settings import CONTAINER_LOGS, HEALTH_SOCKET, POD_LOGS, PREFLIGHT_NAMESPACES
from gpuledger.api.kinds import EVENTS, NAMESPACES, NODES, PODS
from gpuledger.api.preflight import ANNOTATION_CHECKS, MASTER_PORT, SOCKET_NAME, ExitCode
from gpuledger.edge.kube.client import KubeClient, Object, Selection, open_client
from gpuledger.edge.kube.errors import AlreadyExistsError
from gpuledger.preflight.workers import has_torch
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.simulation.kubernetes import Cluster
from support.agent_process import NODE, AgentProcess
from support.check_kubelet import CheckKubelet
from support.checks import ENGINE, Machine, diagnosis, discovery, listing, perf
from support.paths import ROOT
from support.pod_cgroups import hierarchy
from support.servers import short_directory
from support.up import Up, gpuledger, running_up
from support.waiting import eventually

pytestmark = [
    pytest.mark.embedded_only("`gpuledger up` brings its own API server"),
    pytest.mark.long,
    pytest.mark.skipif(hierarchy() is None, reason="this machine lets us make no cgroups"),
]
torch = pytest.mark.skipif(not has_torch(), reason="PyTorch is not installed; make torch installs its CPU build")

RULES = ROOT / "examples" / "quarantine-rules.yaml"
OTHER_NODES = ("w2", "w3")
"""The rules set half of the nodes aside at most."""


class Node(NamedTuple):
    """A node of a cluster, with its kubelet and agent, and the image of the checks that run there."""

    up: Up
    client: KubeClient
    kubelet: CheckKubelet
    agent: AgentProcess
    image: Machine

    def has_cards(self, **tests: str) -> None:
        """The image has the tools for GPUs; DCGM's tests of the cards end as given, such as `memory="Pass/Fail"`."""
        cards = self.agent.cards()
        self.image.has("nvidia-smi", listing(cards))
        self.image.has("all_reduce_perf", perf(200.0))
        self.image.has("dcgmi", "", discovery=discovery(cards), diag=diagnosis(**tests))

    async def create(self, name: str, **metadata: Any) -> Object:
        """A user creates a pod that requests both cards."""
        container = {"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
        body = {"metadata": {"name": name, "namespace": "training", **metadata}, "spec": {"containers": [container]}}
        return await self.client.create(PODS, body)

    @property
    def cluster(self) -> Cluster:
        """The scheduler, and who deletes pods."""
        return Cluster(self.client, clock=system_clock, sleep=asyncio.sleep)

    async def run(self, pod: Object) -> Object:
        """The pod is bound to the node, unless it is, and the kubelet runs its init containers."""
        assert await self.cluster.bind(f"training/{pod['metadata']['name']}", NODE)
        return await self.kubelet.run(pod)

    async def has_no_gangs(self) -> bool:
        """Whether all gangs are dissolved."""
        return bool(await self.answer("preflight", "gangs", "-A") == [])

    async def answer(self, *command: str) -> Any:
        """What a command prints as JSON."""
        done = await asyncio.to_thread(gpuledger, self.up.data_dir, *command, "-o", "json")
        return json.loads(done.stdout) if done.stdout else {}

    async def is_cordoned(self, is_so: bool) -> None:
        """Return when the Node is set aside, or is not any more."""

        async def as_expected() -> bool:
            node = await self.client.get(NODES, NODE)
            return bool(node["spec"].get("unschedulable")) == is_so

        await eventually(as_expected)

    async def outcomes(self, pod: str, *expected: str | None) -> Any:
        """What `preflight show` has of a pod, once the outcomes of its checks are these."""
        found: Any = {}

        async def are_so() -> bool:
            nonlocal found
            found = await self.answer("preflight", "show", f"training/{pod}")
            return [one["outcome"] for one in found.get("checks", [])] == [*expected]

        await eventually(are_so)
        return found


@pytest.fixture(scope="module")
def node_folder() -> Iterator[Path]:
    with short_directory() as folder:
        (folder / "health").mkdir()
        yield folder


@pytest.fixture(scope="module")
def up(node_folder: Path) -> Iterator[Up]:
    file = node_folder / "preflight.yaml"
    file.write_text(_configuration(node_folder))
    with short_directory() as directory, running_up(directory, GPULEDGER_PREFLIGHT_FILE=str(file)) as up:
        applied = gpuledger(directory, "quarantine", "apply", "-f", str(RULES))
        assert applied.returncode == 0, applied.stderr
        yield up


def _configuration(node_folder: Path) -> str:
    return json.dumps(
        {
            "checks": [
                {"name": "dcgm-diag", "image": "i"},
                *({"name": one, "image": "i", "requiresNetwork": False} for one in ("nccl-loopback", "nccl-allreduce")),
            ],
            "dcgm": {"hostengineAddr": ENGINE},
            "nccl": {"allreduceThresholdGBps": 0.0},
            "gangDiscovery": {"method": "labels", "labels": {"gangIdLabel": "job", "gangSizeLabel": "size"}},
            "connector": {"socketDirectory": str(node_folder / "health")},
            "namespaces": ["training"],
        }
    )


@pytest.fixture
async def node(up: Up, node_folder: Path) -> AsyncIterator[Node]:
    async with open_client(up.data_dir / "kubeconfig") as client:
        await _prepare(client)
        await eventually(lambda: asyncio.to_thread(_is_configured, up))
        with short_directory() as folder, _image() as image:
            kubelet = CheckKubelet(client, NODE, folder, image)
            agent = AgentProcess(
                folder,
                up.running.endpoints.nats_url,
                **{
                    HEALTH_SOCKET: str(node_folder / "health" / SOCKET_NAME),
                    PREFLIGHT_NAMESPACES: "training",
                    POD_LOGS: str(kubelet.pod_logs),
                    CONTAINER_LOGS: str(kubelet.container_logs),
                },
            )
            await agent.start()
            try:
                yield Node(up, client, kubelet, agent, image)
            finally:
                await agent.kill()


@pytest.fixture
def master_port() -> Iterator[None]:
    """The port of the gang's master, which is the same everywhere; the pods of another run are waited for."""
    with Path(tempfile.gettempdir(), f"gpuledger-port-{MASTER_PORT}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def _prepare(client: KubeClient) -> None:
    with suppress(AlreadyExistsError):
        await client.create(NAMESPACES, {"metadata": {"name": "training"}})
        for name in (NODE, *OTHER_NODES):
            await client.create(NODES, {"metadata": {"name": name}})


def _is_configured(up: Up) -> bool:
    document = up.health().document["preflight"]
    assert isinstance(document, dict)
    return bool(document["webhook"]["state"] == "answering" and document["coordinator"]["state"] == "writing")


@contextmanager
def _image() -> Iterator[Machine]:
    with short_directory() as folder:
        yield Machine(folder)


def exit_codes(pod: Object) -> list[int | None]:
    """How the checks of a pod have ended, as the kubelet shows it; None: not at all."""
    states = [one["state"].get("terminated") for one in pod["status"]["initContainerStatuses"]]
    return [None if one is None else one["exitCode"] for one in states]


async def test_a_pod_whose_checks_pass_starts_and_the_ledger_says_so(node: Node) -> None:
    node.has_cards(memory="Pass/Pass")
    pod = await node.create("good")
    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["preflight-dcgm-diag", "preflight-nccl-loopback"]
    ran = await node.run(pod)
    assert exit_codes(ran) == [ExitCode.PASSED, ExitCode.PASSED], node.kubelet.log(pod, "preflight-dcgm-diag")
    assert node.image.calls("dcgmi") == [f"discovery -l --host {ENGINE}", f"diag -r 1 --host {ENGINE} -j -i 4,6"]
    found = await node.outcomes("good", "passed", "passed")
    assert (found["node"], found["done"], found["incidents"]) == (NODE, True, [])
    assert found["checks"][1]["bandwidth_bytes_s"] == 200e9


async def test_a_card_that_fails_sets_its_node_aside_until_the_check_passes(node: Node) -> None:
    node.has_cards(memory="Pass/Fail")
    pod = await node.create("bad")
    assert exit_codes(await node.run(pod)) == [ExitCode.FAILED, None]
    await node.is_cordoned(True)
    found = await node.outcomes("bad", "failed", None)
    (incident,) = found["incidents"]
    assert (incident["device"], incident["codes"]) == (node.agent.cards()[1], "DCGM_MEMORY_FAIL")
    explained = await node.answer("why", "node", NODE)
    assert explained["setAside"]
    (request,) = explained["requests"]
    assert (request["owner"], request["state"]) == ("health/GPU fatal error ruleset", "cordoned")
    assert "preflight-dcgm-diag" in json.dumps(request["hops"])
    (event,) = (await node.client.list(EVENTS, Selection("training"))).items
    assert (event["reason"], event["regarding"]["name"]) == ("PreflightCheckFailed", "bad")
    node.has_cards(memory="Pass/Pass")
    assert exit_codes(await node.run(pod)) == [ExitCode.PASSED, ExitCode.PASSED]
    await node.is_cordoned(False)
    assert (await node.outcomes("bad", "failed", "passed", "passed"))["incidents"] == []


@torch
@pytest.mark.usefixtures("master_port")
async def test_two_pods_of_a_gang_reduce_together_and_the_successor_of_one_waits_for_nobody(node: Node) -> None:
    marks = {"labels": {"job": "llama", "size": "2"}, "annotations": {ANNOTATION_CHECKS: "nccl-allreduce"}}
    pods = [await node.create(name, **marks) for name in ("llama-0", "llama-1")]
    ran = await asyncio.gather(*map(node.run, pods))
    logs = [node.kubelet.log(pod, "preflight-nccl-allreduce") for pod in pods]
    assert [exit_codes(one) for one in ran] == [[ExitCode.PASSED]] * 2, logs
    found = [await node.outcomes(name, "passed") for name in ("llama-0", "llama-1")]
    assert {one["checks"][0]["message"].partition(" GB/s ")[2] for one in found} == {
        "bus bandwidth of 2 ranks over gloo"
    }
    assert {(one["gangState"]["state"], one["gangState"]["found"]) for one in found} == {("complete", 2)}
    await node.cluster.delete("training/llama-1")
    ran_late = await node.run(await node.create("llama-2", **marks))
    assert exit_codes(ran_late) == [ExitCode.PASSED]
    late = await node.outcomes("llama-2", "skipped")
    assert "(1) have passed before this one came" in late["checks"][0]["message"]
    assert (late["gangState"]["expected"], late["gangState"]["timed_out_at"]) == (1, None)
    for name in ("llama-0", "llama-2"):
        await node.cluster.delete(f"training/{name}")
    await eventually(node.has_no_gangs)
