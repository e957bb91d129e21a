"""The agent's process: assembles the parts, runs them with their metrics and health, and ends in an orderly way."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Final

from gpuledger.agent.board import Board
from gpuledger.agent.control import control_socket
from gpuledger.agent.declared_files import DeclaredDevices
from gpuledger.agent.desired_devices import DesiredDevices
from gpuledger.agent.discovery import CardDiscovery
from gpuledger.agent.errors import AgentError
from gpuledger.agent.exporter import ExporterMonitor, scraper
from gpuledger.agent.gateway.part import HealthGateway
from gpuledger.agent.gateway.service import ReportCounts
from gpuledger.agent.hardware.calls import HardwareCalls
from gpuledger.agent.hardware.factory import open_hardware, open_nics
from gpuledger.agent.hardware.kernel_log_reader import read_kernel_log
from gpuledger.agent.health.card import Rules
from gpuledger.agent.health.part import HealthMonitor
from gpuledger.agent.health.severity import parse_classes
from gpuledger.agent.kubelet.pod_resources import PodResources
from gpuledger.agent.metrics import AgentMetrics
from gpuledger.agent.nic_discovery import NicDiscovery
from gpuledger.agent.node_shares import AllocatedDevicesFollower, SharedDevicesFollower
from gpuledger.agent.outbox.bounds import DEFAULT_SIZES
from gpuledger.agent.outbox.entry import QueueBounds
from gpuledger.agent.outbox.errors import FolderTakenError, OutboxError
from gpuledger.agent.outbox.outbox import Outbox, open_outbox
from gpuledger.agent.part import Part
from gpuledger.agent.plugin.allocate import DeviceInjection
from gpuledger.agent.plugin.part import DevicePlugin, PluginSettings
from gpuledger.agent.plugin.service import PluginCounts
from gpuledger.agent.runtime_facts import RuntimeFacts
from gpuledger.agent.settings import AgentSettings, KubeletSettings, NatsSettings, read_agent_settings
from gpuledger.agent.setup.part import PoolSetup
from gpuledger.agent.shared_connection import SharedConnection
from gpuledger.agent.supervisor import Supervisor
from gpuledger.ledger.edge import EdgeLedger, connect_edge
from gpuledger.ledger.errors import LedgerError
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.node_process import print_error, print_message
from gpuledger.runtime.settings import SettingsError
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging
from gpuledger.runtime.telemetry_http import ListenError, serving
from gpuledger.runtimefacts.folder import FactsFolder
from gpuledger.runtimefacts.types import CONFIG_AGENT

OK, FAILED, USAGE, BUSY = 0, 1, 2, 5
"""Exit codes, with the meaning that they have for every command."""

PLUGINS: Final = "device-plugins"
POD_RESOURCES: Final = "pod-resources/kubelet.sock"
ENDING_MAX_S: Final = 20.0
"""How long an orderly end may take before it is interrupted; it waits for the ledger and the disk, within bounds."""


def serve(environ: Mapping[str, str]) -> int:
    """Run the agent that the environment describes until a signal stops it; returns the exit code."""
    configure_logging()
    try:
        asyncio.run(run_until_stopped(_work(read_agent_settings(environ)), print_message, ending_max_s=ENDING_MAX_S))
    except SettingsError as error:
        return print_error(error, USAGE)
    except FolderTakenError as error:
        return print_error(error, BUSY)
    except (AgentError, OutboxError, LedgerError, ListenError) as error:
        return print_error(error, FAILED)
    return OK


async def _work(settings: AgentSettings) -> None:
    async with AsyncExitStack() as stack:
        # Invalid settings fail first, before the ledger has an event of the start.
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
        calls = HardwareCalls(hardware)
        stack.push_async_callback(calls.close)
        connection = SharedConnection(partial(_connect, settings.node, settings.nats))
        board, counts, reports = Board(), PluginCounts(), ReportCounts()
        parts = (
            *_parts(settings, rules, calls, board, outbox, connection, counts),
            *_gateway(settings, board, outbox, reports, connection),
            *_runtime_facts(settings, board, outbox),
        )
        supervisor = Supervisor(settings.node, parts, outbox)
        stack.enter_context(AgentMetrics(board, outbox, counts, reports).registered())
        url = await stack.enter_async_context(serving(settings.listen, supervisor.health))
        inject = getattr(hardware, "inject", None)
        if inject is not None:
            await stack.enter_async_context(control_socket(settings.state_dir, inject))
        print_message(f"The agent of {settings.node} is up; metrics {url}/metrics, health {url}/healthz")
        await supervisor.run(connection.connect)


def _parts(
    settings: AgentSettings,
    rules: Rules,
    calls: HardwareCalls,
    board: Board,
    outbox: Outbox,
    connection: SharedConnection[EdgeLedger],
    counts: PluginCounts,
) -> tuple[Part, ...]:
    """The parts of the agent, in the order in which they start."""
    node = settings.node
    exporter = ExporterMonitor(
        node, scraper(settings.exporter_url), clock=system_clock, has_cards=lambda: board.state.has_cards
    )
    pods = PodResources(
        node,
        board,
        outbox,
        clock=system_clock,
        socket=settings.kubelet.directory / POD_RESOURCES,
        names=settings.kubelet.names,
    )
    health = HealthMonitor(
        calls,
        board,
        outbox,
        rules,
        clock=system_clock,
        monotonic=time.monotonic,
        on_recovered=exporter.restart_streak,
        read_kernel_log=partial(asyncio.to_thread, read_kernel_log) if calls.kind == "nvml" else None,
    )
    return (
        CardDiscovery(node, calls, board, outbox, clock=system_clock, monotonic=time.monotonic),
        health,
        _nics(settings),
        _declared(settings, outbox),
        *_followers(node, board, outbox, connection),
        PoolSetup(calls, board, outbox, clock=system_clock),
        DevicePlugin(
            board,
            _plugin_settings(settings.kubelet),
            counts,
            on_allocated=pods.on_allocated,
            list_pods=pods.list_pods,
        ),
        pods,
        exporter,
    )


def _nics(settings: AgentSettings) -> NicDiscovery:
    read = partial(asyncio.to_thread, open_nics(settings.hardware))
    return NicDiscovery(settings.node, read, clock=system_clock, monotonic=time.monotonic)


def _declared(settings: AgentSettings, outbox: Outbox) -> DeclaredDevices:
    names = settings.kubelet.names
    return DeclaredDevices(settings.node, settings.devices, names, outbox, clock=system_clock, monotonic=time.monotonic)


def _followers(node: str, board: Board, outbox: Outbox, connection: SharedConnection[EdgeLedger]) -> tuple[Part, ...]:
    """The parts that follow what services decide about the node."""
    return (
        DesiredDevices(node, board, outbox, connection.connect),
        SharedDevicesFollower(node, board, outbox, connection.connect),
        AllocatedDevicesFollower(node, board, outbox, connection.connect),
    )


def _gateway(
    settings: AgentSettings,
    board: Board,
    outbox: Outbox,
    counts: ReportCounts,
    connection: SharedConnection[EdgeLedger],
) -> tuple[Part, ...]:
    """The part that health monitors report to, where the settings name a socket for them."""
    if settings.health.socket is None:
        return ()
    gateway = HealthGateway(
        settings.node,
        board,
        outbox,
        settings.health,
        counts,
        connection.connect,
        clock=system_clock,
        monotonic=time.monotonic,
    )
    return (gateway,)


def _runtime_facts(settings: AgentSettings, board: Board, outbox: Outbox) -> tuple[Part, ...]:
    """The parts that record what other processes of the node leave, where the settings name their folders."""
    proxy, config = settings.runtime_proxy, settings.config_facts
    parts: tuple[Part, ...] = ()
    if proxy is not None:
        parts += (RuntimeFacts(settings.node, outbox, FactsFolder(proxy), board),)
    if config is not None:
        parts += (RuntimeFacts(settings.node, outbox, FactsFolder(config), source=CONFIG_AGENT),)
    return parts


def _plugin_settings(kubelet: KubeletSettings) -> PluginSettings:
    injection = DeviceInjection(kubelet.allocate, kubelet.cdi_kind)
    cdi_folders = kubelet.cdi_dirs if injection.by_cdi else ()
    return PluginSettings(kubelet.directory / PLUGINS, injection, cdi_folders, kubelet.names)


@asynccontextmanager
async def _connect(node: str, nats: NatsSettings) -> AsyncIterator[EdgeLedger]:
    async with connect_edge(nats.url, name=f"agent of {node}", node=node, identity=nats.identity) as ledger:
        yield ledger
