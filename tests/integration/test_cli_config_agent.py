"""`gpuledger config-agent plan` shows what the agent would do to a host, and changes nothing."""

import asyncio
from pathlib import Path

import pytest
import yaml

from gpuledger.api.kinds import NODES, RENDERED_MACHINE_CONFIGS
from gpuledger.api.machine_config import ANNOTATION_DESIRED
from gpuledger.domain.machineconfig.desired import DesiredConfig
from gpuledger.domain.machineconfig.rendered_object import document_of
from support.cli import Cli, Result, aside
from support.config_agent import FakeMachine, config, file, unit
from support.embedded_kube import EmbeddedKube
from support.kube_equipped import equipped_client

DESIRED = config(
    [file("/etc/a", "new\n", mode=0o600), file("/etc/passwd", present=False), file("/etc/gone", present=False)],
    [unit("a.service", "restarted", enabled=True)],
    reboot=True,
)
SYSTEMCTL = """#!/bin/sh
printf 'Id=a.service\\nLoadState=loaded\\nActiveState=active\\nUnitFileState=disabled\\n'
"""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands that need neither a ledger nor a database."""
    return Cli(capsys)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    machine = FakeMachine(tmp_path)
    program = tmp_path / "systemctl"
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    monkeypatch.setenv("GPULEDGER_HOST_ROOT", str(machine.root))
    monkeypatch.setenv("GPULEDGER_SYSTEMCTL", str(program))
    return machine


def plan(cli: Cli, folder: Path, desired: DesiredConfig) -> Result:
    rendered = folder / "rendered.yaml"
    rendered.write_text(yaml.safe_dump(document_of(desired)))
    return cli("config-agent", "plan", "--file", str(rendered))


def test_a_plan_of_a_file_names_every_step(cli: Cli, machine: FakeMachine, tmp_path: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in machine.root.rglob("*"))
    shown = plan(cli, tmp_path, DESIRED)
    assert shown.out.splitlines() == [
        f"{DESIRED.name}: 4 of 5 steps change something",
        "write      /etc/a: 4 bytes, mode 0600, owner 0:0",
        "unchanged  /etc/gone",
        "remove     /etc/passwd",
        "systemctl  enable a.service",
        "systemctl  restart a.service",
        "reboot     left to people: the pool's strategy is Never, and the Node shows it as pending",
    ]
    assert shown.code == 0
    assert sorted((path, path.stat().st_mtime_ns) for path in machine.root.rglob("*")) == before
    assert not machine.state.exists()


def test_what_cannot_be_applied_is_a_failure(cli: Cli, machine: FakeMachine, tmp_path: Path) -> None:
    machine.path("/etc/d").symlink_to("/tmp")
    shown = plan(cli, tmp_path, config([file("/etc/d/a", "x")]))
    assert (shown.code, shown.out.splitlines()[1]) == (
        1,
        "problem    /etc/d is a link to /tmp, which is not followed; write the path that it leads to.",
    )
    refused = plan(cli, tmp_path, config([file("/etc/kubernetes/a", "x")]))
    assert (refused.code, "/etc/kubernetes/a is refused" in refused.err) == (1, True)
    (tmp_path / "other.yaml").write_text("- 1\n")
    other = cli("config-agent", "plan", "--file", str(tmp_path / "other.yaml"))
    assert (other.code, "has no object" in other.err) == (2, True)


async def test_without_a_file_the_plan_is_that_of_the_node(
    cli: Cli, machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = aside(cli)
    async with EmbeddedKube(tmp_path / "kube") as kube, equipped_client(kube) as client:
        monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}})
        none = await run("config-agent", "plan", "--node", "w1")
        assert (none.code, "is to have no configuration yet" in none.err) == (1, True)
        await client.create(RENDERED_MACHINE_CONFIGS, document_of(DESIRED))
        annotations = {ANNOTATION_DESIRED: DESIRED.name}
        await client.merge_patch(NODES, "w1", {"metadata": {"annotations": annotations}})
        shown = await run("config-agent", "plan", "--node", "w1")
        assert shown.out.startswith(f"{DESIRED.name}: 4 of 5 steps")
    assert not await asyncio.to_thread(machine.path("/etc/a").exists)
