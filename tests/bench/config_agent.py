"""The agent of machine configuration of one node: its memory and its processor time, at rest and while it applies.

It watches its Node over TLS, as on a node, and applies revisions that change every file. At rest it looks at none of
them for most of the time, since it does so every five minutes.
"""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import psutil

from bench.processes import process
from bench.report import Figure
from gpuledger.api.kinds import NODES, RENDERED_MACHINE_CONFIGS
from gpuledger.api.machine_config import ANNOTATION_CURRENT, ANNOTATION_DESIRED
from gpuledger.configagent.__main__ import ENVIRONMENT
from gpuledger.domain.machineconfig.desired import DesiredConfig
from gpuledger.domain.machineconfig.rendered_object import document_of
from gpuledger.edge.kube.client import KubeClient
from support import servers
from support.config_agent import config, file, unit
from support.config_agent_process import a_config_agent
from support.embedded_kube import EmbeddedKube
from support.kube_equipped import equipped_client
from support.waiting import eventually

NODE = "w1"
FILES = 200
CONTENT = "net.core.somaxconn = 4096\n" * 180
"""So that a revision is about as large as an object of the API may be."""

RSS_MIB = 64.0
CPU_PERCENT = 5.0
"""The agent's share of a node: 64 MiB, and 50 thousandths of a core."""

BARE = "import time; time.sleep(600)"
LOOP = "import asyncio\nasync def main():\n while True: await asyncio.sleep(1)\nasyncio.run(main())"


class ConfigAgentSizes(NamedTuple):
    """For how long the agent is watched at rest, and how many revisions it applies."""

    rest_s: float = 60.0
    revisions: int = 10


FULL = ConfigAgentSizes()
QUICK = ConfigAgentSizes(1.0, 2)


async def config_agent(sizes: ConfigAgentSizes = FULL) -> list[Figure]:
    """Memory at rest and at most, processor time at rest, and the seconds of a revision of 200 files."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(servers.short_directory())
        bare = psutil.Process((await stack.enter_async_context(process("-c", BARE))).pid)
        loop = psutil.Process((await stack.enter_async_context(process("-c", LOOP))).pid)
        kube = await stack.enter_async_context(EmbeddedKube(folder / "kube", secure=True))
        client = await stack.enter_async_context(equipped_client(kube))
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        # As in an image, where all code is compiled: what compiles it would stay in memory.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ |= {**ENVIRONMENT, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        (folder / "host").mkdir()
        async with a_config_agent(folder / "host", kube.kubeconfig):
            await _applied(client, revision(0))
        async with a_config_agent(folder / "host", kube.kubeconfig) as agent:
            assert agent.process is not None
            seen = psutil.Process(agent.process.pid)
            await asyncio.sleep(sizes.rest_s / 4)
            cpu, loop_cpu = await _percent(sizes.rest_s, seen, loop)
            rest_mib = seen.memory_info().rss / 2**20
            seconds = [await _applied(client, revision(number)) for number in range(1, sizes.revisions + 1)]
            most_mib = _most_mib(seen.pid)
        bare_mib, bare_ms = bare.memory_info().rss / 2**20, _bare_ms(folder)
    name = "agent of machine configuration"
    peer = "a bare interpreter"
    return [
        Figure(f"{name} at rest, RSS", rest_mib, "MiB", peer, bare_mib, RSS_MIB, is_ratio=False),
        Figure(
            f"{name} that applies {FILES} files, most RSS", most_mib, "MiB", peer, bare_mib, RSS_MIB, is_ratio=False
        ),
        Figure(
            f"{name} at rest, CPU",
            cpu,
            "%",
            "an event loop that wakes every second",
            loop_cpu,
            CPU_PERCENT,
            is_ratio=False,
        ),
        Figure(
            f"a revision of {FILES} files, to the annotation",
            sum(seconds) / len(seconds) * 1000,
            "ms",
            "the files alone, each synced",
            bare_ms,
            10_000.0,
            is_ratio=False,
        ),
    ]


def revision(number: int) -> DesiredConfig:
    """A revision that changes every file."""
    return config(
        [file(f"/etc/gpuledger-bench/{index:03}.conf", f"# {number}\n{CONTENT}") for index in range(FILES)],
        [unit("bench.service", "restarted")],
    )


async def _applied(client: KubeClient, desired: DesiredConfig) -> float:
    """Seconds from the Node's annotation to the one that says that it is done."""
    await client.create(RENDERED_MACHINE_CONFIGS, document_of(desired))

    async def is_done() -> bool:
        found = (await client.get(NODES, NODE))["metadata"].get("annotations") or {}
        return bool(found.get(ANNOTATION_CURRENT) == desired.name)

    began = perf_counter()
    await client.merge_patch(NODES, NODE, {"metadata": {"annotations": {ANNOTATION_DESIRED: desired.name}}})
    await eventually(is_done)
    return perf_counter() - began


async def _percent(seconds: float, *processes: psutil.Process) -> tuple[float, ...]:
    """Percent of a core of each process."""
    before, began = [_cpu_s(one) for one in processes], perf_counter()
    await asyncio.sleep(seconds)
    elapsed = perf_counter() - began
    return tuple(100 * (_cpu_s(one) - was) / elapsed for one, was in zip(processes, before, strict=True))


def _cpu_s(one: psutil.Process) -> float:
    """The processor time of a process's threads, to the nanosecond, which an event loop at rest needs."""
    threads = Path(f"/proc/{one.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def _most_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _bare_ms(folder: Path) -> float:
    """How long the same files take without anything around them, in milliseconds."""
    target = folder / "bare"
    target.mkdir()
    began = perf_counter()
    for index in range(FILES):
        with (target / str(index)).open("w") as one:
            one.write(CONTENT)
            one.flush()
            os.fsync(one.fileno())
    return (perf_counter() - began) * 1000
