"""A node's agent as a process of its own on simulated hardware, which tests start, fault, kill and restart."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeGuard
from urllib.parse import urlsplit

import orjson

from gpuledger.agent.control import SOCKET, request_fault
from gpuledger.agent.hardware.simulated import SimulatedHardware
from gpuledger.events.device import DeviceHealthChanged, DevicePoolApplied
from gpuledger.events.envelope import Decoded, Event, decode, encode, nats_subject_of
from gpuledger.events.node import NodeDevicesWanted, WantedDevice
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.runtime.clock import system_clock
from support.exporter import exporter_text
from support.kubelet import FakeKubelet, a_kubelet
from support.ledgers import DEADLINE_S, everything, jetstream_ledger, sequencing
from support.outbox import Recorded, recorded
from support.paths import ROOT
from support.servers import short_directory
from support.waiting import eventually

NODE: Final = "w1"
POOL: Final = "team/training"
RESOURCE: Final = "gpu.deckhouse.io/training"
TESTS: Final = ROOT / "tests"
_UP = re.compile(r"health (http://\S+)/healthz").search


class AgentProcess:
    """An agent and its folder; `environ` is added to its environment. It is gone when the test is."""

    def __init__(self, root: Path, nats_url: str, *, hardware: str = "2xH100", **environ: str) -> None:
        self.state_dir = root / "state"
        self.output = ""
        """Its output since it was started last."""
        self.module = "support.agent_fast"
        self.process: asyncio.subprocess.Process | None = None
        self._spec = hardware
        self._listening: asyncio.Task[None] | None = None
        self.environ = {
            "NODE_NAME": NODE,
            "NATS_URL": nats_url,
            "GPULEDGER_HARDWARE": f"simulated:{hardware}",
            "GPULEDGER_KUBELET_DIR": str(root),
            "GPULEDGER_AGENT_STATE_DIR": str(self.state_dir),
            "GPULEDGER_EXPORTER_URL": "http://127.0.0.1:9/metrics",
            **environ,
        }

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self.process is not None and self.process.returncode is None

    def cards(self) -> list[str]:
        """The UUIDs of its cards, by number."""
        return [card.uuid or "" for card in self.hardware().survey().cards]

    def hardware(self) -> SimulatedHardware:
        """Cards like its own, as they come from the box."""
        return SimulatedHardware(self._spec, node=NODE)

    async def start(self, *, wait: bool = True) -> None:
        """Start it, and return when it is up."""
        self.output = ""
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self.module),
            stderr=pipe,
            cwd=TESTS,
            env=_plain_environ() | self.environ,
        )
        self._listening = asyncio.create_task(self._listen(self.process))
        if wait:
            await self.up()

    async def up(self) -> None:
        """Return when it is up."""
        await eventually(self._is_up)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None, "its stderr is a pipe"
        while line := await process.stderr.readline():
            self.output += line.decode()

    async def _is_up(self) -> bool:
        assert self.running, f"the agent ended:\n{self.output}"
        return _UP(self.output) is not None and (self.state_dir / SOCKET).exists()

    async def kill(self) -> None:
        """End it at once, as a crash would."""
        if self.process is not None and self.running:
            self.process.kill()
            await self.ended()

    async def stop(self) -> int:
        """Ask it to end, as a kubelet does; returns the exit code."""
        assert self.process is not None, "it was started"
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Return its exit code when it has ended."""
        assert self.process is not None, "it was started"
        assert self._listening is not None, "it was started"
        async with asyncio.timeout(DEADLINE_S):
            await self._listening
            return await self.process.wait()

    async def inject(self, fault: str) -> None:
        """Inject a fault into its hardware."""
        await request_fault(self.state_dir, fault)

    async def health(self) -> tuple[int, dict[str, Any]]:
        """Status and document of `/healthz`."""
        found = _UP(self.output)
        assert found is not None, self.output
        parts = urlsplit(found[1])
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            async with asyncio.timeout(DEADLINE_S):
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        return int(head.split()[1]), orjson.loads(body)

    async def logs(self, text: str) -> None:
        """Return when its log has this."""

        async def has_logged() -> bool:
            assert text in self.output or self.running, f"the agent ended:\n{self.output}"
            return text in self.output

        await eventually(has_logged)

    async def healthy(self, **expected: object) -> None:
        """Return when `/healthz` has all of these values."""

        async def has_all() -> bool:
            _, document = await self.health()
            return all(document[name] == value for name, value in expected.items())

        await eventually(has_all)


def _plain_environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("GPULEDGER", "NATS"))}


class Place:
    """A node: its agent, its kubelet and the ledger, with handy ways to inspect them."""

    def __init__(self, agent: AgentProcess, kubelet: FakeKubelet, nats: NatsServer, root: Path) -> None:
        self.agent, self.kubelet, self.nats, self.root = agent, kubelet, nats, root
        self._number = 0

    async def events(self) -> list[Decoded]:
        """All that stands in the ledger."""
        async with jetstream_ledger(self.nats.url) as ledger:
            return [decode(message.data) for message in await everything(ledger)]

    async def recorded(self, *kinds: type[Payload]) -> list[Any]:
        """The agent's facts of these kinds, in order."""
        return [event.data for event in await self.events() if isinstance(event.data, kinds)]

    async def recorded_at_least(self, count: int, *kinds: type[Payload]) -> list[Any]:
        """The agent's facts of these kinds, once there are so many."""

        async def has() -> bool:
            return len(await self.recorded(*kinds)) >= count

        await eventually(has)
        return await self.recorded(*kinds)

    async def verdicts(self, card: str, *healthy: bool) -> None:
        """Return when the ledger has these verdicts on the card, in turns; the card is fit at first."""

        async def so() -> bool:
            recorded = [event.data.healthy for event in await self.events() if is_verdict(event, card)]
            return [one for before, one in pairwise([True, *recorded]) if one != before] == list(healthy)

        await eventually(so)

    async def account(self) -> Recorded:
        """What the ledger holds of the agent, as `sources` counts it; a number that was used twice is an error."""
        async with jetstream_ledger(self.nats.url) as ledger:
            found = await everything(ledger, subject_filter=f"ledger.node.{NODE}.>")
        return recorded([Outgoing(message.subject, decode(message.data).id, message.data) for message in found])

    async def nothing_is_lost(self) -> None:
        """Every number of every epoch stands in the ledger, once nothing waits any more."""
        await self.drained()
        account = await self.account()
        assert {epoch: missing for epoch, missing in account.missing.items() if missing} == {}
        assert account.dropped == {}

    async def use(self, count: int = 2, **more: Any) -> None:
        """Start the agent, and have a pool have so many cards, which the kubelet lists."""
        await self.agent.start()
        await self.set_desired(*desired_devices(self.agent, *range(count), **more))
        await self.lists(count)
        await self.recorded_at_least(count, DevicePoolApplied)
        await self.drained()

    async def set_desired(self, *devices: WantedDevice) -> None:
        """Publish these devices as the pools' orders."""
        self._number += 1
        async with jetstream_ledger(self.nats.url) as ledger:
            await publish(ledger, "/services/pools", NODE, NodeDevicesWanted(devices=devices), self._number)

    async def drained(self) -> None:
        """Return when nothing waits for the ledger any more."""
        await self.agent.healthy(waiting=0, ledger="ok")

    async def lists(self, count: int, *, resource: str = RESOURCE, healthy: int | None = None) -> None:
        """Return when the kubelet has so many units, and so many of them (else all) are healthy."""
        expected = (count, count if healthy is None else healthy)

        async def has() -> bool:
            health = self.kubelet.health(resource)
            return (len(health), sum(one == "Healthy" for one in health.values())) == expected

        await eventually(has)


def is_verdict(event: Decoded, card: str) -> TypeGuard[Event[DeviceHealthChanged]]:
    """Whether an event is a verdict on the card."""
    return event.subject == card and isinstance(event.data, DeviceHealthChanged)


def desired_devices(agent: AgentProcess, *numbers: int, **more: Any) -> tuple[WantedDevice, ...]:
    """Cards of the agent as one pool orders them, but for the given fields; `asked_at` is now."""
    cards = agent.hardware().survey().cards
    fields = {"pool": POOL, "resource": RESOURCE, "unit": "Card", "asked_at": system_clock(), **more}
    return tuple(
        WantedDevice(device=f"{NODE}-{number}", uuid=cards[number].uuid, pci_address=cards[number].address, **fields)
        for number in numbers
    )


async def publish(ledger: JetStreamLedger, source: str, subject: str, data: Payload, number: int) -> None:
    """Record a fact as an event of its source."""
    event = Event(f"{source}#{number}", source, data.TYPE, subject, system_clock(), data, "e1", number)
    await ledger.publish(Outgoing(nats_subject_of(event), event.id, encode(event)))


@asynccontextmanager
async def an_exporter() -> AsyncIterator[str]:
    """The URL of metrics that are renewed with every request."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = exporter_text(datetime.now(UTC)).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/metrics"


@asynccontextmanager
async def a_place(
    nats: NatsServer, *, url: str | None = None, hardware: str = "2xH100", environ: Mapping[str, str] | None = None
) -> AsyncIterator[Place]:
    """A node with a kubelet and an agent that is not started yet; there is a ledger."""
    async with AsyncExitStack() as stack:
        root = stack.enter_context(short_directory())
        kubelet = await stack.enter_async_context(a_kubelet(root))
        exporter = await stack.enter_async_context(an_exporter())
        await stack.enter_async_context(sequencing(nats.url))
        given = {"GPULEDGER_EXPORTER_URL": exporter, **(environ or {})}
        agent = AgentProcess(root, url or nats.url, hardware=hardware, **given)
        stack.push_async_callback(agent.kill)
        yield Place(agent, kubelet, nats, root)
