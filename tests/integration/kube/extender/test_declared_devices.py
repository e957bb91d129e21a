"""A new type of device, end to end: a file on a node, its agent, the decider, the extender, the pod's annotation."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson

from gpuledger.agent.declared_files import DeclaredDevices
from gpuledger.agent.part import AgentFact
from gpuledger.api.sharing import DEFAULT_NAMES
from gpuledger.deciders.sharing.projection import SharingProjection
from gpuledger.domain.sharing.annotation import read_allocation
from gpuledger.events.node_sharing import NodeSharingLabelled
from gpuledger.projection.runner import Runner
from gpuledger.runtime.clock import system_clock
from support.agent_parts import Disk
from support.declared import file_of, fpga
from support.enforcing import enforce
from support.extending import NAMES, SharingCluster, scheduling
from support.projections import QUICK_SERVICE, running
from support.statuswriting import CountingClient
from support.waiting import eventually


@asynccontextmanager
async def an_agent(sharing: SharingCluster, node: str, folder: Path) -> AsyncIterator[None]:
    """A node's agent that watches the folder, and looks often."""

    async def record(facts: Sequence[AgentFact]) -> None:
        for fact in facts:
            await sharing.record(f"/nodes/{node}/agent", fact.subject, fact.data)

    part = DeclaredDevices(
        node, folder, DEFAULT_NAMES, Disk(), clock=system_clock, monotonic=time.monotonic,
        sleep=lambda _: asyncio.sleep(0.02),
    )  # fmt: skip
    task = asyncio.create_task(part.run(record))
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_pods_get_devices_that_a_file_declares(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient, tmp_path: Path
) -> None:
    await enforce(sharing.ledger, migrated_url)
    await sharing.record("/watchers/sharingnodes", "n1", NodeSharingLabelled(uid="u1"))
    (tmp_path / "fpga.json").write_bytes(file_of(fpga(0, health=False), fpga(1), fpga(2)))
    (tmp_path / "broken.json").write_bytes(b"[{")
    half, whole, other = [
        await sharing.create(name, fpga=amount) for name, amount in (("half", 50), ("whole", 100), ("other", 60))
    ]
    async with (
        an_agent(sharing, "n1", tmp_path),
        running(Runner(SharingProjection(), sharing.ledger, migrated_url, settings=QUICK_SERVICE)),
        scheduling(sharing.ledger, migrated_url, writing) as scheduler,
    ):
        assert await scheduler.fits(half, "n1") == ["n1"]
        assert await scheduler.bind(half, "n1") == ""
        assert await scheduler.bind(whole, "n1") == ""
        assert (await scheduler.bind(other, "n1")).startswith("NoRoom: n1: Insufficient")
        (tmp_path / "fpga.json").write_bytes(file_of(fpga(0), fpga(1), fpga(2)))
        assert await scheduler.fits(other, "n1") == ["n1"], "the vendor's program says that it works again"
        assert await scheduler.bind(other, "n1") == ""
        (tmp_path / "fpga.json").unlink()
        late = await sharing.create("late", fpga=1)

        async def is_refused() -> bool:
            return not (await scheduler.filter(late, "n1"))["NodeNames"]

        await eventually(is_refused)
    texts = [(await sharing.live(pod))["metadata"]["annotations"][NAMES.allocated] for pod in (half, whole, other)]
    held = [[(one.minor, one.id, one.resources) for one in read_allocation(text, NAMES)["fpga"]] for text in texts]
    assert held == [[(1, "fpga-1", {"fpga": 50})], [(2, "fpga-2", {"fpga": 100})], [(0, "fpga-0", {"fpga": 60})]]
    assert orjson.loads(texts[0]) == {"fpga": [{"minor": 1, "id": "fpga-1", "resources": {"kooperator/fpga": "50"}}]}
