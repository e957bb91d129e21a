"""The process that `gpuledger agent run` becomes, with simulated cards, beside a kubelet that behaves as the real one.

It is given its environment by that of the measuring process.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.processes import process
from gpuledger.agent.footprint import ENVIRONMENT
from support.kubelet import FakeKubelet, a_kubelet

AGENT: Final = "import sys, pynvml; from gpuledger.agent.__main__ import main; sys.exit(main())"
"""With NVML's bindings, which the simulated cards do not need."""

WHOLE: Final = "import pynvml, gpuledger.cli.main, gpuledger.agent.process, aiohttp, rich"
"""What it would have in memory if it stayed the process that its command line began."""


class NodeSpec(NamedTuple):
    """A node: its name, its simulated cards, and where its exporter answers."""

    name: str
    cards: str
    exporter: str = ""


@asynccontextmanager
async def agent_process(
    folder: Path, nats_url: str, node: NodeSpec
) -> AsyncIterator[tuple[asyncio.subprocess.Process, FakeKubelet]]:
    """An agent that has begun a moment ago, and its kubelet; the state is in `folder / "state"`."""
    async with a_kubelet(folder) as kubelet:
        environ = {
            "NODE_NAME": node.name,
            "NATS_URL": nats_url,
            "GPULEDGER_HARDWARE": f"simulated:{node.cards}",
            "GPULEDGER_KUBELET_DIR": str(folder),
            "GPULEDGER_AGENT_STATE_DIR": str(folder / "state"),
            "GPULEDGER_EXPORTER_URL": node.exporter,
        }
        # As in an image, where all code is compiled: what compiles it would stay in memory.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ |= {**ENVIRONMENT, **environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        async with process("-c", WHOLE) as compiling:
            await compiling.wait()
        async with process("-c", AGENT, silent=True) as child:
            yield child, kubelet
