"""The agent's process: puts the parts together, serves what is known of them, and ends in an orderly way."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Final

from gpuledger.agent.board import Board
from gpuledger.agent.control import control_socket
from gpuledger.agent.desired_devices import DesiredDevices
from gpuledger.agent.discovery import CardDiscovery
from gpuledger.agent.errors import AgentError
from gpuledger.agent.exporter import ExporterMonitor, scraper
from gpuledger.agent.hardware.api import NodeHardware
from gpuledger.agent.hardware.calls import HardwareCalls
from gpuledger.agent.hardware.factory import open_hardware
from gpuledger.agent.health.card import Rules
from gpuledger.agent.health.classes import parse_classes
from gpuledger.agent.health.part import HealthMonitor
from gpuledger.agent.kubelet.pod_resources import PodResources
from gpuledger.agent.metrics import AgentMetrics
from gpuledger.agent.outbox.bounds import DEFAULT_SIZES
from gpuledger.agent.outbox.entry import QueueBounds
from gpuledger.agent.outbox.errors import FolderTakenError, OutboxError
from gpuledger.agent.outbox.outbox import Outbox, open_outbox
from gpuledger.agent.part import Part
from gpuledger.agent.plugin.allocate import DeviceInjection
from gpuledger.agent.plugin.part import DevicePlugin, PluginSettings
from gpuledger.agent.settings import AgentSettings, NatsSettings, read_agent_settings
from gpuledger.agent.setup.part import PoolSetup
from gpuledger.agent.shared_connection import SharedConnection
from gpuledger.agent.supervisor import Supervisor
from gpuledger.ledger.credentials import NatsIdentity
from gpuledger.ledger.edge import EdgeLedger, connect_edge
from gpuledger.ledger.errors import LedgerError
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import SettingsError
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging
from gpuledger.runtime.telemetry_http import ListenError, serving

OK, FAILED, USAGE, BUSY = 0, 1, 2, 5
"""Exit codes, which mean what they mean of every command."""

PLUGINS: Final = "device-plugins"
POD_RESOURCES: Final = "pod-resources/kubelet.sock"
ENDING_MAX_S: Final = 20.0
"""How long an orderly end may take before it is interrupted: the ledger and the disk are waited for, within bounds."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an agent, by what they are."""

    discovery: CardDiscovery
    health: HealthMonitor
    orders: DesiredDevices
    setup: PoolSetup
    plugin: DevicePlugin
    pods: PodResources
    exporter: ExporterMonitor

    def all(self) -> tuple[Part, ...]:
        """Every part, in the order in which they are begun."""
        return (self.discovery, self.health, self.orders, self.setup, self.plugin, self.pods, self.exporter)


def serve(environ: Mapping[str, str]) -> int:
    """Run the agent that the environment describes until a signal says to stop; returns the exit code."""
    configure_logging()
    try:
        asyncio.run(run_until_stopped(_work(read_agent_settings(environ)), _say, ending_max_s=ENDING_MAX_S))
    except SettingsError as error:
        return _failed(error, USAGE)
    except FolderTakenError as error:
        return _failed(error, BUSY)
    except (AgentError, OutboxError, LedgerError, ListenError) as error:
        return _failed(error, FAILED)
    return OK


async def _work(settings: AgentSettings) -> None:
    async with AsyncExitStack() as stack:
        # What can be wrong with settings comes first: a start that fails of them is none that the ledger hears of.
        rules = Rules(settings.node, parse_classes(settings.xid_classes))
        hardware = open_hardware(settings.hardware, settings.node)
        outbox = await stack.enter_async_context(
            open_outbox(
                settings.state_dir,
                settings.node,
                version=version("gpuledger"),
                hardware=hardware.kind,
                sizes=DEFAULT_SIZES._replace(spool=QueueBounds(settings.spool.events_max, settings.spool.bytes_max)),
            )
        )
        link = SharedConnection(partial(_connect, settings.node, settings.nats))
        board = Board()
        parts = await stack.enter_async_context(_assembled(settings, rules, hardware, board, outbox, link))
        agent = Supervisor(settings.node, parts.all(), outbox)
        stack.enter_context(AgentMetrics(board, outbox, parts.plugin.counts).registered())
        url = await stack.enter_async_context(serving(settings.listen, agent.health))
        inject = getattr(hardware, "inject", None)
        if inject is not None:
            await stack.enter_async_context(control_socket(settings.state_dir, inject))
        _say(f"The agent of {settings.node} is up; metrics {url}/metrics, health {url}/healthz")
        await agent.run(link.connect)


@asynccontextmanager
async def _assembled(
    settings: AgentSettings,
    rules: Rules,
    hardware: NodeHardware,
    board: Board,
    outbox: Outbox,
    link: SharedConnection[EdgeLedger],
) -> AsyncIterator[Parts]:
    calls = HardwareCalls(hardware)
    exporter = ExporterMonitor(settings.node, scraper(settings.exporter_url), clock=system_clock)
    pods = PodResources(
        settings.node, board, outbox, clock=system_clock, socket=settings.kubelet.directory / POD_RESOURCES
    )
    try:
        yield Parts(
            CardDiscovery(settings.node, calls, board, outbox, clock=system_clock, monotonic=time.monotonic),
            HealthMonitor(
                calls,
                board,
                outbox,
                rules,
                clock=system_clock,
                monotonic=time.monotonic,
                on_recovered=exporter.restart_streak,
            ),
            DesiredDevices(settings.node, board, outbox, link.connect),
            PoolSetup(calls, board, outbox, clock=system_clock),
            DevicePlugin(board, _plugin_settings(settings), on_allocated=pods.on_allocated),
            pods,
            exporter,
        )
    finally:
        await calls.close()


def _plugin_settings(settings: AgentSettings) -> PluginSettings:
    kubelet = settings.kubelet
    injection = DeviceInjection(kubelet.allocate, kubelet.cdi_kind)
    return PluginSettings(kubelet.directory / PLUGINS, injection, kubelet.cdi_dirs if injection.by_cdi else ())


@asynccontextmanager
async def _connect(node: str, nats: NatsSettings) -> AsyncIterator[EdgeLedger]:
    identity = NatsIdentity(nats.credentials, nats.ca, nats.certificate, nats.key)
    async with connect_edge(nats.url, name=f"agent of {node}", node=node, identity=identity) as ledger:
        yield ledger


def _say(text: str) -> None:
    """Tell something; whoever listened to stderr may be gone."""
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - a program's own word, beside its log
    except OSError:
        return


def _failed(error: Exception, code: int) -> int:
    _say(f"Error: {error}")
    return code
