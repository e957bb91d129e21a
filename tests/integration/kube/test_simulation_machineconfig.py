"""Nodes of a simulated fleet take machine configurations: files and units of hosts in folders, and reboots."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gpuledger.api.kinds import NODES, RENDERED_MACHINE_CONFIGS
from gpuledger.api.machine_config import (
    ANNOTATION_CURRENT,
    ANNOTATION_DESIRED,
    ANNOTATION_LAST_ERROR,
    ANNOTATION_REBOOT_PENDING,
    ANNOTATION_STATE,
    rendered_name,
)
from gpuledger.configagent.host import UnitStatus
from gpuledger.domain.machineconfig.config_hash import config_hash
from gpuledger.domain.machineconfig.desired import DesiredConfig, DesiredFile, DesiredUnit
from gpuledger.domain.machineconfig.rendered_object import document_of
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.events.machine_config import OWNER_DEFAULT, NodeConfigReported
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.tasks import end
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.machineconfig.hosts import MachineFolder
from gpuledger.tools.simulation.machineconfig.systemd import SimulatedSystemd
from gpuledger.tools.simulation.workload import Rates
from support.kube_fleet import create
from support.kube_server import KubeServer
from support.simulating import FastClock, SteadyClock, events_of, simulate
from support.waiting import eventually

SPEC: Final = FleetSpec(nodes=2, gpus=1)
FIRST, OTHER = Fleet(SPEC, 1).nodes
QUIET: Final = Rates(load=1e-6, failures_per_1000_node_days=0, duration_min_s=1e6, reboot_s=400.0)
SYSCTL: Final = DesiredFile("/etc/sysctl.d/99-gpu.conf", "vm.swappiness = 10\n", 0o640, OWNER_DEFAULT, "present")
CHRONY: Final = DesiredUnit("chronyd.service", enabled=True, state="started", mask=False)
JOB: Final = DesiredUnit("job.service", enabled=None, state="started", mask=False)

Node = dict[str, Any]


def config(*parts: DesiredFile | DesiredUnit, reboot: bool = False) -> DesiredConfig:
    files = tuple(one for one in parts if isinstance(one, DesiredFile))
    units = tuple(one for one in parts if isinstance(one, DesiredUnit))
    digest = config_hash(files, units, reboot_required=reboot)
    return DesiredConfig(rendered_name("gpu", digest), "gpu", digest, files, units, reboot, "IfRequired", 0)


def job(program: str) -> DesiredFile:
    path = "/etc/systemd/system/job.service"
    return DesiredFile(path, f"[Service]\nExecStart={program}\n", 0o644, OWNER_DEFAULT, "present")


@pytest.fixture
async def client(kube: KubeServer) -> AsyncIterator[KubeClient]:
    """A client of an empty server."""
    async with open_client(kube.kubeconfig) as client:
        yield client


@asynccontextmanager
async def fleet(client: KubeClient, ledger: MemoryLedger, clock: FastClock, hosts: Path) -> AsyncIterator[None]:
    """The fleet, as long as the block runs."""
    running = asyncio.create_task(simulate(client, ledger, clock, spec=SPEC, rates=QUIET, speed=10, hosts=hosts))
    try:
        await becomes(client, OTHER, lambda node: node.get("status", {}).get("conditions"))
        yield
    finally:
        await end([running])


async def desire(client: KubeClient, node: str, desired: DesiredConfig) -> str:
    """Have a node take a configuration; returns its name."""
    await create(client, RENDERED_MACHINE_CONFIGS, document_of(desired))
    await client.merge_patch(NODES, node, {"metadata": {"annotations": {ANNOTATION_DESIRED: desired.name}}})
    return desired.name


async def becomes(client: KubeClient, name: str, holds: Callable[[Node], object]) -> Node:
    """The Node, once something holds of it."""
    node: Node = {}

    async def found() -> bool:
        nonlocal node
        node = next((one for one in (await client.list(NODES)).items if one["metadata"]["name"] == name), {})
        return bool(node and holds(node))

    await eventually(found)
    return node


def annotations(node: Node) -> Mapping[str, str]:
    found: Mapping[str, str] = node["metadata"].get("annotations") or {}
    return found


def has_done(name: str) -> Callable[[Node], bool]:
    return lambda node: (annotations(node).get(ANNOTATION_CURRENT), state(node)) == (name, "done")


def state(node: Node) -> str | None:
    return annotations(node).get(ANNOTATION_STATE)


def is_ready(node: Node) -> bool:
    return ("Ready", "True") in {(one["type"], one["status"]) for one in node["status"]["conditions"]}


def unit(hosts: Path, node: str, name: str) -> UnitStatus:
    return SimulatedSystemd(MachineFolder(hosts, node), FastClock(1).now).observe([name])[name]


async def test_a_node_takes_a_configuration_and_its_agent_records_it(client: KubeClient, tmp_path: Path) -> None:
    ledger = MemoryLedger()
    async with fleet(client, ledger, SteadyClock(1e6), tmp_path):
        name = await desire(client, FIRST, config(SYSCTL, CHRONY))
        await becomes(client, FIRST, has_done(name))

        async def reports() -> list[NodeConfigReported]:
            events = [one for one in await events_of(ledger) if isinstance(one.data, NodeConfigReported)]
            assert {(one.source, one.subject) for one in events} <= {(f"/nodes/{FIRST}/agent", FIRST)}
            return [one.data for one in events if isinstance(one.data, NodeConfigReported)]

        async def is_recorded() -> bool:
            return [one.state for one in await reports()][-1:] == ["done"]

        await eventually(is_recorded)
        last = (await reports())[-1]
        other = next(one for one in (await client.list(NODES)).items if one["metadata"]["name"] == OTHER)
    assert (last.revision, last.current_revision, last.boot) == (name, name, FIRST)
    file = tmp_path / FIRST / "etc/sysctl.d/99-gpu.conf"
    assert (file.read_text(), file.stat().st_mode & 0o7777) == (SYSCTL.content, SYSCTL.mode)
    assert unit(tmp_path, FIRST, CHRONY.name) == UnitStatus("loaded", "active", "enabled", "simple")
    assert not (tmp_path / OTHER).exists(), "a node without a configuration has no host"
    assert not annotations(other)


async def test_a_node_reboots_and_comes_back(client: KubeClient, tmp_path: Path) -> None:
    async with fleet(client, MemoryLedger(), SteadyClock(1e6), tmp_path):
        name = await desire(client, FIRST, config(SYSCTL, CHRONY, reboot=True))
        down = await becomes(client, FIRST, lambda node: not is_ready(node))
        assert (state(down), annotations(down)[ANNOTATION_REBOOT_PENDING]) == ("rebooting", "true")
        up = await becomes(client, FIRST, lambda node: is_ready(node) and has_done(name)(node))
    assert down["status"]["nodeInfo"]["bootID"] == FIRST
    assert up["status"]["nodeInfo"]["bootID"] == MachineFolder(tmp_path, FIRST).boot_id != FIRST
    assert annotations(up).get(ANNOTATION_REBOOT_PENDING) != "true"
    assert unit(tmp_path, FIRST, CHRONY.name).active == "active", "it is enabled"


async def test_a_simulation_that_is_interrupted_during_a_reboot_goes_on(client: KubeClient, tmp_path: Path) -> None:
    ledger, clock = MemoryLedger(), SteadyClock(1e6)
    async with fleet(client, ledger, clock, tmp_path):
        name = await desire(client, FIRST, config(SYSCTL, reboot=True))
        await becomes(client, FIRST, lambda node: not is_ready(node))
    async with fleet(client, ledger, clock, tmp_path):
        up = await becomes(client, FIRST, lambda node: is_ready(node) and has_done(name)(node))
    assert up["status"]["nodeInfo"]["bootID"] == MachineFolder(tmp_path, FIRST).boot_id != FIRST


async def test_a_unit_that_fails_is_an_error_until_a_configuration_mends_it(client: KubeClient, tmp_path: Path) -> None:
    async with fleet(client, MemoryLedger(), SteadyClock(1e6), tmp_path):
        failing = await desire(client, FIRST, config(job("/bin/false"), JOB))
        node = await becomes(client, FIRST, lambda node: state(node) == "error")
        assert "job.service" in annotations(node)[ANNOTATION_LAST_ERROR]
        assert annotations(node).get(ANNOTATION_CURRENT) != failing
        mended = await desire(client, FIRST, config(job("/usr/bin/sleep 9"), JOB))
        node = await becomes(client, FIRST, has_done(mended))
    assert not annotations(node).get(ANNOTATION_LAST_ERROR)
    assert unit(tmp_path, FIRST, JOB.name).active == "active"
