"""`gpuledger up`: the servers, where they are embedded, and every projection, in one process until it is told to stop.

A projection that stops does not end it, so that the others go on and an operator can mend what stopped it; servers
that cannot be brought back do. It must end in an orderly way on SIGINT and SIGTERM, whatever it is just doing.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, NamedTuple

import structlog
import typer

from gpuledger.cli.backend import all_projections
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import Console, quiet_pipe
from gpuledger.cli.run import run
from gpuledger.cli.stopping import until_stopped
from gpuledger.clock import system_clock
from gpuledger.db.migrate import migrate
from gpuledger.embedded.datadir import UP, embedded_servers
from gpuledger.embedded.watch import keep_running
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.published import CountedLedger
from gpuledger.projection.supervision import Supervision
from gpuledger.settings import Settings, read_settings
from gpuledger.telemetry import configure_logging
from gpuledger.telemetry_http import Health, ListenError, parse_address, serving

EMBEDDED_SERVERS = 2

CANCEL_AGAIN_S = 1.0
"""How long something that was cancelled has to end before it is cancelled again."""

log = structlog.get_logger("gpuledger.up")

Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Where /metrics and /healthz are served (or $GPULEDGER_METRICS_LISTEN); port 0 is any free one.",
        show_default="127.0.0.1:0",
    ),
]
Work = Coroutine[Any, Any, None]


class Servers(NamedTuple):
    """Where the servers are, and what keeps them there: nothing where they are not ours."""

    nats_url: str
    database_url: str
    watch: list[Work]


def up(data_dir: DataDir = None, listen: Listen = None) -> None:
    """Run the embedded servers and all projections until Ctrl-C.

    With NATS_URL and DATABASE_URL set, those servers are used and none are started. Any other command with the same
    --data-dir finds what runs here.
    """
    configure_logging()
    settings = read_settings(os.environ, data_dir)
    address = listen or settings.metrics_listen
    _check_address(address)
    run(until_stopped(_serve(settings, address)))


async def _serve(settings: Settings, address: str) -> None:
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(_servers(settings))
        ledger = await stack.enter_async_context(connect_ledger(servers.nats_url, name="gpuledger up"))
        supervision = Supervision(all_projections(), CountedLedger(ledger), servers.database_url)
        url = await stack.enter_async_context(_http(address, supervision))
        _tell(settings, servers, url)
        await _side_by_side([*supervision.work(), *servers.watch])


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
            yield Servers(urls.nats_url, urls.database_url, watch)


@asynccontextmanager
async def _http(address: str, supervision: Supervision) -> AsyncIterator[str]:
    try:
        async with serving(address, lambda: health_of(supervision)) as url:
            yield url
    except ListenError as error:
        raise CliError(str(error)) from error


def health_of(supervision: Supervision) -> Health:
    """What `/healthz` answers."""
    healthy = supervision.healthy
    document = {
        "status": "ok" if healthy else "failing",
        "reason": None if healthy else _reason(supervision),
        "generation": supervision.ledger.generation,
        "head": supervision.head,
        "projections": {name: found._asdict() for name, found in supervision.health().items()},
    }
    return Health(healthy, document)


def _reason(supervision: Supervision) -> str:
    stopped = [found.reason for found in supervision.health().values() if found.reason]
    return " ".join(stopped) or "The servers have not answered lately."


async def _side_by_side(work: list[Work]) -> None:
    """Run all of it until one fails; that failure is raised once the others have ended."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel until all have ended, because the NATS client swallows a cancellation now and then."""
    pending = set(tasks)
    for task in pending:
        if not task.cancelling():  # a second cancellation would interrupt an orderly end
            task.cancel()
    while pending:
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
        for task in pending:
            task.cancel()


def _check_address(address: str) -> None:
    try:
        parse_address(address)
    except ListenError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error


def _tell(settings: Settings, servers: Servers, url: str) -> None:
    """Say on stdout how to reach everything; passwords only of servers that are this user's own."""
    console = Console.standard()
    lines = ["gpuledger is up; Ctrl-C stops it.", ""]
    if settings.servers is None:
        lines += [f"  export NATS_URL={servers.nats_url}", f"  export DATABASE_URL={servers.database_url}", ""]
        lines += [f"  data     {settings.data_dir}"]
    lines += [f"  metrics  {url}/metrics", f"  health   {url}/healthz", ""]
    with quiet_pipe(console.out):
        console.out.write("\n".join(lines) + "\n")
