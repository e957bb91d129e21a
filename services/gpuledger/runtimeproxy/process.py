"""The runtime proxy's process: the proxy, what it learns of running containers, metrics and health, and its end.

Neither the ledger nor the agent has to be there: no pod of a node starts without the proxy, whatever else is away.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

from gpuledger.runtime.clock import random_id, system_clock
from gpuledger.runtime.node_process import print_error, print_message
from gpuledger.runtime.settings import SettingsError
from gpuledger.runtime.tasks import run_until_stopped
from gpuledger.runtime.telemetry import configure_logging
from gpuledger.runtime.telemetry_http import Health, ListenError, serving
from gpuledger.runtimefacts.folder import FactsFolder, NodeFile
from gpuledger.runtimefacts.stored import StoredFacts
from gpuledger.runtimefacts.types import read_node_document
from gpuledger.runtimeproxy.creation import ContainerCreation
from gpuledger.runtimeproxy.errors import RuntimeProxyError, SocketInUseError
from gpuledger.runtimeproxy.metrics import ProxyMetrics
from gpuledger.runtimeproxy.node_view import NodeView, node_view
from gpuledger.runtimeproxy.running import RunningContainers
from gpuledger.runtimeproxy.server import proxying, runtime_channel
from gpuledger.runtimeproxy.settings import ProxySettings, read_proxy_settings
from gpuledger.runtimeproxy.traffic import Traffic

OK, FAILED, USAGE, BUSY = 0, 1, 2, 5
"""Exit codes, with the meaning that they have for every command."""

ENDING_MAX_S: Final = 10.0
"""How long an end may take beyond that of the calls under way before it is interrupted."""


def serve(environ: Mapping[str, str]) -> int:
    """Run the proxy that the environment describes until a signal stops it; returns the exit code."""
    configure_logging()
    try:
        settings = read_proxy_settings(environ)
        ending_max_s = settings.drain_max_s + ENDING_MAX_S
        asyncio.run(run_until_stopped(_work(settings), print_message, ending_max_s=ending_max_s))
    except SettingsError as error:
        return print_error(error, USAGE)
    except SocketInUseError as error:
        return print_error(error, BUSY)
    except (RuntimeProxyError, ListenError) as error:
        return print_error(error, FAILED)
    return OK


async def _work(settings: ProxySettings) -> None:
    traffic = Traffic()
    facts = StoredFacts(FactsFolder(settings.folder), clock=system_clock, new_id=random_id)
    node = NodeFile(settings.folder, _view)
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(runtime_channel(settings.runtime))
        running = RunningContainers(channel, settings.names.allocated, facts)
        creation = ContainerCreation(settings.names, settings.naming, node.value, facts, running.look_soon)
        stack.enter_context(ProxyMetrics(traffic, creation, facts).registered())
        url = await stack.enter_async_context(serving(settings.metrics, lambda: _health(settings, facts, running)))
        proxy = proxying(settings.listen, channel, creation.changes(), traffic, drain_max_s=settings.drain_max_s)
        await stack.enter_async_context(proxy)
        print_message(
            f"The runtime proxy is up: {settings.listen} is before {settings.runtime}; "
            f"metrics {url}/metrics, health {url}/healthz"
        )
        await running.run()


def _view(document: object) -> NodeView:
    return node_view(*read_node_document(document))


def _health(settings: ProxySettings, facts: StoredFacts, running: RunningContainers) -> Health:
    """Healthy while it answers; a runtime that is away is only reported, since the proxy must stay before it."""
    troubles = {"facts": facts.trouble, "running containers": running.trouble}
    document = {
        "status": "ok",
        "reason": None,
        "listen": str(settings.listen),
        "runtime": str(settings.runtime),
        "troubles": {part: trouble for part, trouble in troubles.items() if trouble},
    }
    return Health(True, document)
