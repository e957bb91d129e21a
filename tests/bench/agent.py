"""One node's agent as it runs on a node of eight cards: its memory, its processor time, and how fast an error is known.

The agent is the process that `gpuledger agent run` becomes, with simulated cards, a kubelet that behaves as the real
one, an exporter and a ledger. Errors are injected one at a time: how long it takes until the event stands in the
ledger, and until the kubelet knows that the device is unhealthy, counts from before the injection.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import NamedTuple

import psutil

from bench.agent_process import WHOLE, NodeSpec, agent_process
from bench.processes import process
from bench.report import Figure
from gpuledger.agent.control import SOCKET, request_fault
from gpuledger.agent.hardware.simulated import SimulatedHardware
from gpuledger.agent.health.part import POLL_PERIOD_S
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.node import NodeDevicesWanted, WantedDevice
from gpuledger.ledger.api import Ledger, Outgoing
from support import servers
from support.exporter import exporter_text
from support.kubelet import FakeKubelet
from support.ledgers import new_ledger

NODE = "node-1"
CARDS = 8
SPEC = f"{CARDS}xH100"
RESOURCE = "gpu.deckhouse.io/training"
RSS_MIB = 80.0
CPU_PERCENT = 1.0
KNOWN_MS = 200.0
WAIT_S = 60.0
POLL_S = 0.001
FAULT = 48
"""An error that leaves a trace in the counters, so that their reset shows at once that the card is well again."""

SEEN_S = 2 * POLL_PERIOD_S + 1
"""After so long the agent has seen the counters grow, so that it can see them reset."""

HARMLESS = (13, 31, 43, 45, 68, 109, 63, 92, 94, 137)
RSS = "; print(next(line for line in open('/proc/self/status') if line.startswith('VmRSS')).split()[1])"


class AgentSizes(NamedTuple):
    """For how long the agent is watched at rest, and how often each card is made to fail."""

    rest_s: float = 60.0
    rounds: int = 3


FULL = AgentSizes()
QUICK = AgentSizes(1.0, 1)


class Running(NamedTuple):
    """An agent at work, and what it is seen by."""

    pid: int
    state_dir: Path
    kubelet: FakeKubelet
    ledger: Ledger

    def healthy(self) -> int:
        """How many units the kubelet may hand out."""
        return _healthy(self.kubelet)


async def agent(sizes: AgentSizes = FULL) -> list[Figure]:
    """Memory and processor time at rest, and the 99th percentile of how long an error takes to be known."""
    async with running() as at_work:
        whole_mib = await _imported_mib(WHOLE)
        cpu_percent, loop_percent, rss_mib = await _at_rest(at_work, sizes.rest_s)
        recorded = [await _recorded(at_work, f"xid:{xid}@{card}") for xid in HARMLESS for card in range(CARDS)]
        device_list_s = [seconds for _ in range(sizes.rounds) for seconds in await _faults(at_work)]
        bare = [await _bare(at_work.ledger, number) for number in range(len(recorded))]
    name, peer = f"agent of {CARDS} cards at rest", "an acknowledgement of the ledger"
    return [
        Figure(f"{name}, RSS", rss_mib, "MiB", "its imports as the CLI's process", whole_mib, RSS_MIB, False),
        Figure(
            f"{name}, CPU", cpu_percent, "%", "an event loop that wakes every second", loop_percent, CPU_PERCENT, False
        ),
        Figure("XID -> in the ledger, p99", _p99(recorded), "ms", peer, _p99(bare), KNOWN_MS, is_ratio=False),
        Figure("XID -> ListAndWatch, p99", _p99(device_list_s), "ms", peer, _p99(bare), KNOWN_MS, is_ratio=False),
    ]


@asynccontextmanager
async def running(*, with_orders: bool = True) -> AsyncIterator[Running]:
    """An agent with its kubelet; with orders, all its cards are a pool's, and the kubelet has them."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(servers.short_directory())
        nats = stack.enter_context(servers.nats_server())
        ledger = await stack.enter_async_context(new_ledger(nats.url, name="bench"))
        exporter = await stack.enter_async_context(_exporter())
        if with_orders:
            await ledger.publish(orders())
        node = agent_process(folder, nats.url, NodeSpec(NODE, SPEC, exporter))
        child, kubelet = await stack.enter_async_context(node)
        expected = CARDS if with_orders else 0
        await _until(lambda: _healthy(kubelet) == expected and (folder / "state" / SOCKET).exists())
        yield Running(child.pid, folder / "state", kubelet, ledger)


def orders(cards_number: int = CARDS) -> Outgoing:
    """So many cards are a pool's."""
    now = datetime.now(UTC)
    cards = SimulatedHardware(SPEC, node=NODE).survey().cards
    devices = tuple(
        WantedDevice(
            device=f"{NODE}-{number}",
            uuid=card.uuid,
            pci_address=card.address,
            pool="team/training",
            resource=RESOURCE,
            unit="Card",
            asked_at=now,
        )
        for number, card in enumerate(cards[:cards_number])
    )
    data = NodeDevicesWanted(devices=devices)
    event = Event(f"pending-{cards_number}", "/services/pools", data.TYPE, NODE, now, data, "bench", cards_number)
    return Outgoing(nats_subject_of(event), event.id, encode(event))


@asynccontextmanager
async def _exporter() -> AsyncIterator[str]:
    """Metrics of eight cards that were renewed just now."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = exporter_text(datetime.now(UTC), [f"GPU-{card}" for card in range(8)]).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/metrics"


async def _at_rest(running: Running, seconds: float) -> tuple[float, float, float]:
    """Percent of a core, that of a bare event loop, and resident MiB, after the same time at rest."""
    seen = psutil.Process(running.pid)
    loop = "import asyncio\nasync def main():\n while True: await asyncio.sleep(1)\nasyncio.run(main())"
    async with process("-c", loop) as child:
        bare = psutil.Process(child.pid)
        await asyncio.sleep(seconds / 4)
        before, bare_before, began = _cpu_s(seen), _cpu_s(bare), perf_counter()
        await asyncio.sleep(seconds)
        elapsed = perf_counter() - began
        percent, bare_percent = (
            100 * (_cpu_s(one) - was) / elapsed for one, was in ((seen, before), (bare, bare_before))
        )
    return percent, bare_percent, seen.memory_info().rss / 2**20


def _cpu_s(one: psutil.Process) -> float:
    times = one.cpu_times()
    return times.user + times.system


async def _recorded(running: Running, fault: str) -> float:
    """Seconds until the ledger has one event more."""
    head = await running.ledger.head()
    async with running.ledger.read(head) as reader:
        began = perf_counter()
        await request_fault(running.state_dir, fault)
        await reader.next_batch(timeout_s=WAIT_S)
        return perf_counter() - began


async def _faults(running: Running) -> list[float]:
    """Seconds until the kubelet knows, for each card; afterwards all of them are well again."""
    latencies = [await _listed(running, card) for card in range(CARDS)]
    await asyncio.sleep(SEEN_S)
    await request_fault(running.state_dir, "recover")
    await _until(lambda: _healthy(running.kubelet) == CARDS)
    return latencies


async def _listed(running: Running, card: int) -> float:
    healthy = _healthy(running.kubelet)
    began = perf_counter()
    await request_fault(running.state_dir, f"xid:{FAULT}@{card}")
    await _until(lambda: _healthy(running.kubelet) < healthy)
    return perf_counter() - began


def _healthy(kubelet: FakeKubelet) -> int:
    return sum(health == "Healthy" for health in kubelet.health(RESOURCE).values())


async def _bare(ledger: Ledger, number: int) -> float:
    pending = orders()
    elsewhere = pending.subject.replace(NODE, "node-2")
    began = perf_counter()
    await ledger.publish(Outgoing(elsewhere, f"bare-{number}", pending.data))
    return perf_counter() - began


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 - what is measured is a matter of milliseconds
            await asyncio.sleep(POLL_S)


async def _imported_mib(imports: str) -> float:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"{imports}{RSS}", stdout=asyncio.subprocess.PIPE
    )
    recorded, _ = await child.communicate()
    return int(recorded) / 1024


def _p99(times_s: list[float]) -> float:
    return quantiles(times_s, n=100, method="inclusive")[98] * 1000
