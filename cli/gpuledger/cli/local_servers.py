"""The embedded servers of `gpuledger up`, as factories for what composes it.

Only this module and `backend` start local servers. It takes long to import, so that commands import it when they run.
"""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from gpuledger.cli.errors import CliError
from gpuledger.compose.up import DataServers, LocalServers
from gpuledger.local.kubeapi.persistence import ObjectsFileError
from gpuledger.local.kubeapi.running import embedded_kube
from gpuledger.local.servers.datadir import UP
from gpuledger.local.servers.embedded import embedded_servers
from gpuledger.local.servers.watch import keep_running
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.telemetry_http import parse_address

RESTART_THREADS = 2
"""One for each embedded server."""


def local_servers(data_dir: Path, kube_listen: str) -> LocalServers:
    """The factories for a data directory; `kube_listen` is the address of the embedded Kubernetes API."""
    return LocalServers(lambda: _data(data_dir), lambda: _kube(data_dir, kube_listen))


@asynccontextmanager
async def _data(data_dir: Path) -> AsyncIterator[DataServers]:
    with ThreadPoolExecutor(RESTART_THREADS, thread_name_prefix="restart") as threads:
        async with embedded_servers(data_dir, command=UP, now=system_clock()) as servers:
            work = [keep_running(server, threads) for server in (servers.nats, servers.postgres)]
            yield DataServers(servers.endpoints.nats_url, servers.endpoints.database_url, list(work))


@asynccontextmanager
async def _kube(data_dir: Path, listen: str) -> AsyncIterator[Path]:
    host, port = parse_address(listen)
    try:
        async with embedded_kube(data_dir, host, port) as embedded:
            yield embedded.kubeconfig
    except ObjectsFileError as error:
        raise CliError(str(error)) from error
