"""What `gpuledger up` runs: the servers, where they are embedded, and every service, until one of them fails.

A projection that stops does not end it, so that the others go on and an operator can mend what stopped it; servers
that cannot be brought back do.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import structlog

from gpuledger.cli.edge import Edge, EdgeOptions, kube_edge
from gpuledger.cli.errors import CliError
from gpuledger.cli.render import Console, quiet_pipe
from gpuledger.db.migrate import migrate
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.local.servers.datadir import UP, embedded_servers
from gpuledger.local.servers.watch import keep_running
from gpuledger.projection.published import CountedLedger
from gpuledger.projection.supervision import Supervision
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import Settings
from gpuledger.runtime.tasks import Work, run_until_one_fails
from gpuledger.runtime.telemetry_http import Health, ListenError, serving
from gpuledger.tools.queries.backend import all_projections

EMBEDDED_SERVERS = 2

log = structlog.get_logger("gpuledger.up")


class Servers(NamedTuple):
    """Where the servers are, and what keeps them there: nothing where they are not ours."""

    nats_url: str
    database_url: str
    watch: list[Work]


async def serve(settings: Settings, address: str, edge_options: EdgeOptions | None) -> None:
    """Run everything.

    Raises:
        CliError: the address of the metrics, or that of the webhooks, cannot be had.
    """
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(_servers(settings))
        ledger = await stack.enter_async_context(connect_ledger(servers.nats_url, name="gpuledger up"))
        supervision = Supervision(all_projections(), CountedLedger(ledger), servers.database_url)
        edge = None
        if edge_options is not None:
            starting = kube_edge(settings, edge_options, supervision.ledger, servers.database_url)
            edge = await stack.enter_async_context(starting)
        url = await stack.enter_async_context(_http(address, supervision, edge))
        _tell(settings, servers, edge, url)
        await run_until_one_fails([*supervision.work(), *servers.watch, *(edge.work if edge else ())])


@asynccontextmanager
async def _servers(settings: Settings) -> AsyncIterator[Servers]:
    if settings.servers is not None:
        await asyncio.to_thread(migrate, settings.servers.database_url)
        yield Servers(settings.servers.nats_url, settings.servers.database_url, [])
        return
    with ThreadPoolExecutor(EMBEDDED_SERVERS, thread_name_prefix="restart") as threads:
        async with embedded_servers(settings.data_dir, command=UP, now=system_clock()) as servers:
            urls = servers.endpoints
            await asyncio.to_thread(migrate, urls.database_url)
            watch: list[Work] = [keep_running(server, threads) for server in (servers.nats, servers.postgres)]
            try:
                yield Servers(urls.nats_url, urls.database_url, watch)
            finally:
                for one in watch:
                    one.close()  # where something else failed they never began, and Python would complain of that


@asynccontextmanager
async def _http(address: str, supervision: Supervision, edge: Edge | None) -> AsyncIterator[str]:
    try:
        async with serving(address, lambda: health_of(supervision, edge)) as url:
            yield url
    except ListenError as error:
        raise CliError(str(error)) from error


def health_of(supervision: Supervision, edge: Edge | None) -> Health:
    """What `/healthz` answers."""
    healthy = supervision.healthy
    document = {
        "status": "ok" if healthy else "failing",
        "reason": None if healthy else _reason(supervision),
        "generation": supervision.ledger.generation,
        "head": supervision.head,
        "projections": {name: found._asdict() for name, found in supervision.health().items()},
    }
    if edge is not None:
        document["statuswriter"] = edge.writer.health()._asdict()
        document["admission"] = None if edge.webhooks is None else edge.webhooks.health()._asdict()
    return Health(healthy, document)


def _reason(supervision: Supervision) -> str:
    stopped = [found.reason for found in supervision.health().values() if found.reason]
    return " ".join(stopped) or "The servers have not answered lately."


def _tell(settings: Settings, servers: Servers, edge: Edge | None, url: str) -> None:
    """Say on stdout how to reach everything; passwords only of servers that are this user's own."""
    console = Console.standard()
    lines = ["gpuledger is up; Ctrl-C stops it.", ""]
    if settings.servers is None:
        lines += [f"  export NATS_URL={servers.nats_url}", f"  export DATABASE_URL={servers.database_url}", ""]
        lines += [f"  data     {settings.data_dir}"]
    if edge is not None and edge.embedded is not None:
        lines.insert(2, f"  export KUBECONFIG={edge.embedded.kubeconfig}")
    lines += [f"  metrics  {url}/metrics", f"  health   {url}/healthz", ""]
    with quiet_pipe(console.out):
        console.out.write("\n".join(lines) + "\n")
