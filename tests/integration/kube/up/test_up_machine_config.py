"""A node's file from MachineConfig to disk: steps of `tests/cluster` on `gpuledger up` and the agent's own process."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from cluster.machineconfig import FILE, FOLDER, MachineConfigs
from cluster.tools import Tools
from gpuledger.api.kinds import NODES
from gpuledger.edge.kube.client import KubeClient
from support.kube_fleet import create
from support.up import DEADLINE_S, Up, environment

pytestmark = [
    pytest.mark.long,
    pytest.mark.embedded_only("`gpuledger up` brings its own API server"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

FLEET: Final = ()
NODE: Final = "w1"
COMMAND: Final = (sys.executable, "-m", "gpuledger.configagent")


class FolderLook:
    """Looks at the file in the folder that is the root of the node."""

    def __init__(self, root: Path) -> None:
        self._file = root / FOLDER.removeprefix("/") / FILE

    def begin(self) -> None:
        """There is nothing to make."""

    def content(self, node: str) -> str | None:
        """What it has."""
        assert node == NODE
        return self._file.read_text() if self._file.exists() else None

    def end(self) -> None:
        """Nothing was made."""


@contextmanager
def agent(root: Path, up: Up) -> Iterator[None]:
    """The node's agent, with a folder as the root of the node."""
    kubeconfig = str(up.data_dir / "kubeconfig")
    own = {"NODE_NAME": NODE, "GPULEDGER_HOST_ROOT": str(root), "KUBECONFIG": kubeconfig}
    with subprocess.Popen(COMMAND, env=environment(up.data_dir) | own) as process:
        try:
            yield
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


async def test_a_file_is_applied_held_back_rolled_back_and_removed(up: Up, client: KubeClient, tmp_path: Path) -> None:
    await create(client, NODES, {"metadata": {"name": NODE}})
    (tmp_path / "etc").mkdir()
    tools = Tools(str(up.data_dir / "kubeconfig"), "gpu-system")
    configs = MachineConfigs(tools, FolderLook(tmp_path), lambda: NODE)
    with agent(tmp_path, up):
        for step in configs.steps():
            step()
