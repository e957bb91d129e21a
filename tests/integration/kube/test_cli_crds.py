"""`gpuledger crds` against a working API server: its output and exit codes."""

import asyncio
from pathlib import Path

import pytest

from gpuledger.api.kinds import (
    CLUSTER_GPU_POOLS,
    CRDS,
    GPU_DEVICES,
    GPU_NODE_STATES,
    GPU_POOLS,
    MACHINE_CONFIG_POOLS,
    MACHINE_CONFIGS,
    RENDERED_MACHINE_CONFIGS,
    RESOURCE_SLICE_STATUSES,
    shared_devices,
)
from gpuledger.cli.errors import ExitCode
from gpuledger.edge.kube.client import open_client
from support.cli import Cli, Result
from support.kube_server import KubeServer


class Crds:
    """Runs `gpuledger crds` beside the server, which lives in the test's own loop."""

    def __init__(self, cli: Cli, kubeconfig: Path) -> None:
        self._cli = cli
        self._kubeconfig = kubeconfig

    async def __call__(self, *arguments: str) -> Result:
        """Run `gpuledger crds` with these arguments."""
        return await asyncio.to_thread(self._cli, "crds", *arguments, "--kubeconfig", str(self._kubeconfig))


@pytest.fixture
def crds(kube: KubeServer, capsys: pytest.CaptureFixture[str]) -> Crds:
    """The command."""
    return Crds(Cli(capsys), kube.kubeconfig)


async def test_diff_fails_until_everything_is_installed(crds: Crds) -> None:
    before = await crds("diff", "-o", "json")
    assert before.code == ExitCode.ERROR
    kinds = (
        CLUSTER_GPU_POOLS, shared_devices(), GPU_DEVICES, GPU_NODE_STATES, GPU_POOLS, MACHINE_CONFIG_POOLS,
        MACHINE_CONFIGS, RENDERED_MACHINE_CONFIGS, RESOURCE_SLICE_STATUSES,
    )  # fmt: skip
    assert [(row["name"], row["state"]) for row in before.json()] == [(kind.full_name, "missing") for kind in kinds]
    installed = await crds("install")
    assert installed.code == ExitCode.OK
    assert "created" in installed.out
    after = await crds("diff")
    assert (after.code, after.out) == (ExitCode.OK, "")
    assert "as shipped" in after.err


async def test_diff_names_the_place(crds: Crds, kube: KubeServer) -> None:
    await crds("install")
    async with open_client(kube.kubeconfig) as client:
        await client.merge_patch(CRDS, GPU_DEVICES.full_name, {"spec": {"names": {"shortNames": ["gd"]}}})
    found = await crds("diff")
    assert found.code == ExitCode.ERROR
    assert "spec.names.shortNames[0]" in found.out
    refused = await crds("install")
    assert refused.code == ExitCode.ERROR
    assert ".spec.names.shortNames" in refused.err
    assert "crds install --force" in refused.err
    assert (await crds("install", "--force")).code == ExitCode.OK
    assert (await crds("diff")).code == ExitCode.OK


async def test_a_server_that_is_not_there(crds: Crds, tmp_path: Path) -> None:
    result = await asyncio.to_thread(crds._cli, "crds", "diff", "--kubeconfig", str(tmp_path / "none"))
    assert result.code == ExitCode.USAGE
    assert "Name one with --kubeconfig" in result.err
