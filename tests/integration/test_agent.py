"""The agent of a node against real servers: an exporter that stops, dies and comes back, and NATS that does so."""

import asyncio
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gpuledger.agent.errors import MonitoringError
from gpuledger.agent.exporter import SCRAPE_PERIOD_S, ExporterMonitor, scraper
from gpuledger.agent.hardware.sysfs import pci_cards
from gpuledger.agent.heartbeat import HEARTBEATS_REPORTED
from gpuledger.agent.outbox.outbox import open_outbox
from gpuledger.agent.supervisor import Supervisor
from gpuledger.api.phases import HEARTBEAT_MAX_AGE_S
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.node import NodeAgentStarted, NodeDevicesObserved, NodeMonitoringObserved
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Message
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.local.kubeapi.listening import listening
from gpuledger.local.servers.nats import NatsServer
from support.exporter import exporter_text, virtual_exporter_text
from support.ledgers import DEADLINE_S, everything, jetstream_ledger, make_ledger
from support.up import COMMAND, environment, gpuledger
from support.waiting import eventually

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Exporter:
    """Serves metrics as an exporter does, for as long as it is alive."""

    def __init__(self) -> None:
        self.updated_at: datetime | None = NOON
        """None: the cards do not count their energy."""
        self.port = 0
        self._serving = AsyncExitStack()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        self._serving.push_async_callback(runner.cleanup)
        self.port = await self._serving.enter_async_context(listening(runner, "127.0.0.1", self.port))

    async def die(self) -> None:
        await self._serving.aclose()

    async def _answer(self, _request: web.Request) -> web.Response:
        at = self.updated_at
        return web.Response(text=virtual_exporter_text() if at is None else exporter_text(at))


@pytest.fixture
async def exporter() -> AsyncIterator[Exporter]:
    exporter = Exporter()
    await exporter.start()
    yield exporter
    await exporter.die()


class Pace:
    """Time that passes only when the test has the agent look again; other waits are real ones, and short."""

    def __init__(self) -> None:
        self.now = NOON
        self._looks: asyncio.Queue[None] = asyncio.Queue()
        self.polled: asyncio.Queue[None] = asyncio.Queue()

    def clock(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return (self.now - NOON).total_seconds()

    async def sleep(self, seconds: float) -> None:
        if seconds != SCRAPE_PERIOD_S:
            await asyncio.sleep(min(seconds, 0.1))
            return
        self.polled.put_nowait(None)
        await self._looks.get()

    async def look(self, after_s: float = SCRAPE_PERIOD_S) -> None:
        """Have it look once, so many seconds later, and return when it has."""
        self.now += timedelta(seconds=after_s)
        self._looks.put_nowait(None)
        async with asyncio.timeout(DEADLINE_S):
            await self.polled.get()


class Running:
    """An agent at work."""

    def __init__(self, nats_url: str, exporter: Exporter, pace: Pace, agent: Supervisor) -> None:
        self.agent = agent
        self._nats_url, self._exporter, self._pace = nats_url, exporter, pace

    async def beat(self, times: int, *, moving: bool = True) -> None:
        """So many looks, each at metrics that were renewed or (`moving` False) were not."""
        for _ in range(times):
            if moving:
                self._exporter.updated_at = self._pace.now + timedelta(seconds=SCRAPE_PERIOD_S)
            await self._pace.look()

    async def recorded(self) -> list[bool]:
        """What the ledger has been told, once nothing waits any more."""
        return [event.data.fresh for event in await self.events() if isinstance(event.data, NodeMonitoringObserved)]

    async def events(self) -> list[Decoded]:
        async def is_idle() -> bool:
            return not self.agent.health().document["waiting"]

        await eventually(is_idle)
        async with jetstream_ledger(self._nats_url) as ledger:
            return [decode(message.data) for message in await everything(ledger)]


@pytest.fixture
async def pace() -> Pace:
    return Pace()


@pytest.fixture
async def running(fresh_nats: NatsServer, exporter: Exporter, pace: Pace, tmp_path: Path) -> AsyncIterator[Running]:
    """An agent that has looked once."""
    url = fresh_nats.url
    await make_ledger(url)
    scrape = scraper(exporter.url)
    watch = ExporterMonitor("w1", scrape, clock=pace.clock, monotonic=pace.monotonic, sleep=pace.sleep)
    async with open_outbox(tmp_path, "w1", version="0", hardware="none", clock=pace.clock) as outbox:
        agent = Supervisor("w1", [watch], outbox)
        task = asyncio.create_task(
            agent.run(lambda: connect_ledger(url, name="agent", connect_timeout_s=1.0, publish_timeout_s=1.0))
        )
        async with asyncio.timeout(DEADLINE_S):
            await pace.polled.get()
        yield Running(url, exporter, pace, agent)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_an_exporter_that_stops_moving_on_is_reported_and_so_is_one_that_moves_on_again(running: Running) -> None:
    looks_until_lost = int(HEARTBEAT_MAX_AGE_S / SCRAPE_PERIOD_S) + 1
    await running.beat(HEARTBEATS_REPORTED + 3)
    assert await running.recorded() == [True] * HEARTBEATS_REPORTED
    await running.beat(looks_until_lost, moving=False)
    assert await running.recorded() == [True] * HEARTBEATS_REPORTED + [False]
    await running.beat(3)
    assert await running.recorded() == [True] * HEARTBEATS_REPORTED + [False] + [True] * 3
    events = await running.events()
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert {(event.source, event.subject) for event in events} == {("/nodes/w1/agent", "w1")}
    assert len({event.epoch for event in events}) == 1


async def test_an_exporter_that_dies_is_reported_and_so_is_its_return(running: Running, exporter: Exporter) -> None:
    await running.beat(2)
    assert await running.recorded() == [True] * 2
    await exporter.die()
    await running.beat(HEARTBEATS_REPORTED + 2, moving=False)
    assert await running.recorded() == [True] * 2 + [False] * HEARTBEATS_REPORTED
    await exporter.start()
    await running.beat(1, moving=False)
    await running.beat(1)
    assert await running.recorded() == [True] * 2 + [False] * HEARTBEATS_REPORTED + [True]


async def test_while_nats_is_away_nothing_is_lost(running: Running, exporter: Exporter, fresh_nats: NatsServer) -> None:
    await running.beat(2)
    assert await running.recorded() == [True] * 2
    fresh_nats.kill()
    for _ in range(20):
        await running.beat(2, moving=False)
        await exporter.die()
        await running.beat(2, moving=False)
        await exporter.start()
        await running.beat(2)
    await running.beat(2)
    await asyncio.to_thread(fresh_nats.start)
    recorded = await running.recorded()
    assert recorded == [True] * 2 + [False, False, True, True] * 20 + [True] * 2
    numbers = [event.number for event in await running.events()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (web.Response(status=503), "responds with status 503"),
        (web.Response(text="x" * 2_000), "responds with more than 1000 bytes"),
        (None, "has not responded within 0.2 s"),
    ],
)
async def test_a_scrape_is_bounded(answer: Any, message: str) -> None:
    stop = asyncio.Event()

    async def handle(_request: web.Request) -> Any:
        if answer is None:
            await stop.wait()
        return answer

    app = web.Application()
    app.router.add_get("/metrics", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
    try:
        with pytest.raises(MonitoringError, match=message):
            await scraper(url, timeout_s=0.2, body_bytes_max=1_000)()
    finally:
        stop.set()
        await runner.cleanup()


async def test_the_command_records_and_ends_in_an_orderly_way(
    clean_nats_url: str, exporter: Exporter, tmp_path: Path
) -> None:
    exporter.updated_at = None
    options = ("--node", "w1", "--nats-url", clean_nats_url, "--exporter", exporter.url)
    here = ("--state-dir", str(tmp_path / "state"), "--kubelet-dir", str(tmp_path), "--hardware", "simulated:2xH100")
    kinds = {NodeAgentStarted, NodeMonitoringObserved, NodeDevicesObserved}
    async with jetstream_ledger(clean_nats_url, puts_in_order=True) as ledger:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "agent", "run", *options, *here, env=environment(tmp_path), stderr=subprocess.PIPE
        )
        events: dict[type[Payload], Decoded] = {}
        async with asyncio.timeout(DEADLINE_S), ledger.read() as reader:
            while not events.keys() >= kinds:
                events |= {type(one.data): one for one in map(decoded, await reader.next_batch())}
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(DEADLINE_S):
        _, output = await process.communicate()
    assert (process.returncode, output.decode().splitlines()[-1]) == (0, "Stopped.")
    assert {event.source for event in events.values()} == {"/nodes/w1/agent"}
    started, monitoring, devices = (
        events[kind].data for kind in (NodeAgentStarted, NodeMonitoringObserved, NodeDevicesObserved)
    )
    assert isinstance(started, NodeAgentStarted)
    assert (started.hardware, started.clean, started.durable) == ("simulated", False, True)
    assert isinstance(monitoring, NodeMonitoringObserved)
    assert monitoring.fresh
    assert isinstance(devices, NodeDevicesObserved)
    assert [card.product for card in devices.cards] == ["NVIDIA H100 80GB HBM3"] * 2
    assert b"The agent of w1 is up; metrics http://127.0.0.1:" in output


@pytest.mark.skipif(bool(pci_cards()), reason="this machine has cards of NVIDIA's")
async def test_the_agent_of_a_node_without_cards_or_driver_is_healthy_and_silent(
    clean_nats_url: str, tmp_path: Path
) -> None:
    """The node's own hardware by NVML, whose library is not there, and no exporter and no kubelet."""
    options = ("--node", "cpu", "--nats-url", clean_nats_url, "--exporter", "http://127.0.0.1:9/metrics")
    here = ("--state-dir", str(tmp_path / "state"), "--kubelet-dir", str(tmp_path), "--hardware", "nvml")
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "agent", "run", *options, *here, env=environment(tmp_path), stderr=subprocess.PIPE
    )
    opening = jetstream_ledger(clean_nats_url, puts_in_order=True)
    async with asyncio.timeout(DEADLINE_S), opening as ledger, ledger.read() as reader:
        surveys: list[NodeDevicesObserved] = []
        while not surveys:
            found = [decoded(message).data for message in await reader.next_batch()]
            surveys = [one for one in found if isinstance(one, NodeDevicesObserved)]
        assert process.stderr is not None
        (url,) = re.findall(rb"health (http://\S+)", await process.stderr.readline())
        async with aiohttp.ClientSession() as session, session.get(url.decode()) as answer:
            status, document = answer.status, await answer.json()
    assert (surveys[0].cards, surveys[0].driver_missing) == ((), True)
    assert (status, document["status"]) == (200, "ok")
    assert document["troubles"].keys() <= {"pod resources"}, "there is no kubelet"
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(DEADLINE_S):
        _, output = await process.communicate()
    assert (process.returncode, output.decode().splitlines()[-1]) == (0, "Stopped.")


def decoded(message: Message) -> Decoded:
    return decode(message.data)


def test_an_agent_that_does_not_know_its_node_reports_so(tmp_path: Path) -> None:
    recorded = gpuledger(tmp_path, "agent", "run", "--nats-url", "nats://127.0.0.1:4222")
    assert (recorded.returncode, recorded.stdout) == (2, b"")
    assert recorded.stderr == b"Error: The node's name is missing; give --node, or set NODE_NAME.\n"


def test_faults_are_for_agents_with_simulated_hardware(tmp_path: Path) -> None:
    recorded = gpuledger(tmp_path, "agent", "inject", "xid:79", "--state-dir", str(tmp_path))
    assert (recorded.returncode, recorded.stdout) == (1, b"")
    assert b"only simulated hardware takes faults" in recorded.stderr
