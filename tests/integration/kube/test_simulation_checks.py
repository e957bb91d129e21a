"""Pods with injected checks on a simulated fleet: the nodes' kubelets run them, and their agents record reports."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from gpuledger.api.kinds import CONFIG_MAPS, NAMESPACES, PODS
from gpuledger.api.preflight import MONITOR
from gpuledger.edge.kube.client import KubeClient, Selection, open_client
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.preflight import PreflightResult
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.tasks import end
from gpuledger.tools.simulation.fleet import FleetSpec
from gpuledger.tools.simulation.workload import Rates
from support.checked_pods import TRAINING, checked_pod, config_map
from support.kube_fleet import create, create_account
from support.kube_server import KubeServer
from support.simulating import FastClock, SteadyClock, events_of, simulate
from support.waiting import eventually

SPEC: Final = FleetSpec(nodes=3, gpus=4)
QUIET: Final = Rates(load=1e-6, failures_per_1000_node_days=0, duration_min_s=1e6)
ALONE: Final = ("dcgm-diag", "nccl-loopback")

Pod = dict[str, Any]


@pytest.fixture
async def client(kube: KubeServer) -> AsyncIterator[KubeClient]:
    """A client of a server with the namespace `training`."""
    async with open_client(kube.kubeconfig) as client:
        await create(client, NAMESPACES, {"metadata": {"name": TRAINING}})
        await create_account(client, TRAINING)
        yield client


@asynccontextmanager
async def fleet(client: KubeClient, ledger: MemoryLedger, clock: FastClock) -> AsyncIterator[None]:
    """The fleet, as long as the block runs."""
    running = asyncio.create_task(simulate(client, ledger, clock, spec=SPEC, rates=QUIET, speed=10))
    try:
        yield
    finally:
        await end([running])


async def becomes(client: KubeClient, name: str, holds: Callable[[Pod], object]) -> Pod:
    """The pod, once something holds of it."""
    pod: Pod = {}

    async def found() -> bool:
        nonlocal pod
        pod = await client.get(PODS, name, TRAINING)
        return bool(holds(pod))

    await eventually(found)
    return pod


def runs(pod: Pod) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def address(pod: Pod) -> str:
    return str(pod["status"].get("podIP", ""))


def waits_again(pod: Pod) -> bool:
    statuses = pod["status"].get("initContainerStatuses") or ()
    return any("lastState" in one and "waiting" in one["state"] for one in statuses)


async def reports(ledger: MemoryLedger) -> list[NodeHealthReported]:
    found = [one.data for one in await events_of(ledger) if isinstance(one.data, NodeHealthReported)]
    return [one for one in found if one.monitor == MONITOR]


async def test_a_gang_goes_through_its_checks_and_runs(client: KubeClient) -> None:
    ledger = MemoryLedger()
    async with fleet(client, ledger, SteadyClock(1e9)):
        for name in ("a", "b"):
            await create(client, PODS, checked_pod(name, gang="jobs", gpus=2))
        peers = [(name, address(await becomes(client, name, address))) for name in ("a", "b")]
        await create(client, CONFIG_MAPS, config_map("jobs", 2, peers))
        pods = [await becomes(client, name, runs) for name in ("a", "b")]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == len({ip for _, ip in peers}) == 2
    for pod in pods:
        ends = [one["state"]["terminated"] for one in pod["status"]["initContainerStatuses"]]
        assert [PreflightResult.model_validate_json(one["message"]).outcome for one in ends] == ["passed"] * 3
    found = await reports(ledger)
    assert len(found) == 6
    assert all(one.healthy and len(one.devices) == 2 for one in found)
    held = [one for one in await events_of(ledger) if isinstance(one.data, WorkloadScheduled)]
    assert {one.subject for one in held} == {"training/a", "training/b"}


async def test_a_check_that_fails_is_reported_by_its_node_and_tried_again(client: KubeClient) -> None:
    ledger = MemoryLedger()
    async with fleet(client, ledger, SteadyClock(1e9)):
        await create(client, PODS, checked_pod("a", ALONE, failing="dcgm-diag=DCGM_PCIE_FAIL"))
        pod = await becomes(client, "a", waits_again)
        await client.delete(PODS, "a", TRAINING)

        async def ended() -> bool:
            return any(isinstance(one.data, WorkloadEnded) for one in await events_of(ledger))

        await eventually(ended)
    first, second = pod["status"]["initContainerStatuses"]
    assert first["lastState"]["terminated"]["exitCode"] == 1
    assert second["state"] == {"waiting": {"reason": "PodInitializing"}}
    report = (await reports(ledger))[0]
    assert (report.fatal, report.check, report.codes) == (True, "preflight-dcgm-diag", ("DCGM_PCIE_FAIL",))
    (scheduled,) = (one.data for one in await events_of(ledger) if isinstance(one.data, WorkloadScheduled))
    assert [share.device for share in scheduled.devices] == list(report.devices)


async def test_a_fleet_that_begins_again_goes_on_with_the_checks(client: KubeClient) -> None:
    ledger, clock = MemoryLedger(), SteadyClock(1e9)
    async with fleet(client, ledger, clock):
        await create(client, PODS, checked_pod("a", gang="jobs", gpus=2))
        before = await becomes(client, "a", lambda pod: len(_passed(pod)) == 2)
    async with fleet(client, ledger, SteadyClock(1e9, clock.time)):
        await create(client, CONFIG_MAPS, config_map("jobs", 1, [("a", address(before))]))
        after = await becomes(client, "a", runs)
    assert _passed(after)[:2] == _passed(before), "what had passed was not run again"
    assert (after["spec"]["nodeName"], address(after)) == (before["spec"]["nodeName"], address(before))
    assert not [one for one in await events_of(ledger) if isinstance(one.data, WorkloadEnded)]


async def test_pods_of_other_namespaces_without_checks_are_left_alone(client: KubeClient) -> None:
    ledger = MemoryLedger()
    other = checked_pod("other", ALONE)
    del other["metadata"]["labels"]
    async with fleet(client, ledger, SteadyClock(1e9)):
        await create(client, PODS, other)
        await create(client, PODS, checked_pod("a", ALONE))
        await becomes(client, "a", runs)
    (pod,) = (one for one in (await client.list(PODS, Selection(TRAINING))).items if one["metadata"]["name"] == "other")
    assert "nodeName" not in pod["spec"]


def _passed(pod: Pod) -> list[Any]:
    statuses = pod["status"].get("initContainerStatuses") or ()
    return [one["state"]["terminated"] for one in statuses if one["state"].get("terminated", {}).get("exitCode") == 0]
