"""`gpuledger agent`: the agent of one node, until it is told to stop.

It needs the ledger and nothing else of ours: no database and no Kubernetes API.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

import typer

from gpuledger.agent.settings import DEFAULT_EXPORTER_URL, EXPORTER_URL, NODE_NAME, AgentSettings, read_agent_settings
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.run import run
from gpuledger.cli.stopping import say, until_stopped
from gpuledger.clock import random_id, system_clock
from gpuledger.ledger.api import Ledger
from gpuledger.settings import NATS_URL
from gpuledger.telemetry import configure_logging
from gpuledger.telemetry_http import ListenError, parse_address, serving

Node = Annotated[str | None, typer.Option("--node", metavar="NAME", help=f"Which node this is (or ${NODE_NAME}).")]
NatsUrl = Annotated[str | None, typer.Option("--nats-url", metavar="URL", help=f"The ledger (or ${NATS_URL}).")]
Exporter = Annotated[
    str | None,
    typer.Option(
        "--exporter",
        metavar="URL",
        help=f"The metrics of the node's dcgm-exporter (or ${EXPORTER_URL}).",
        show_default=DEFAULT_EXPORTER_URL,
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Where /metrics and /healthz are served (or $GPULEDGER_METRICS_LISTEN); port 0 is any free one.",
        show_default="127.0.0.1:0",
    ),
]


def agent(node: Node = None, nats_url: NatsUrl = None, exporter: Exporter = None, listen: Listen = None) -> None:
    """Watch over one node's GPUs, and record what is found, until Ctrl-C."""
    configure_logging()
    settings = read_agent_settings(os.environ, node=node, nats_url=nats_url, exporter_url=exporter, listen=listen)
    try:
        parse_address(settings.listen)
    except ListenError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error
    run(until_stopped(_serve(settings)))


async def _serve(settings: AgentSettings) -> None:
    from gpuledger.agent.exporter import ExporterObserver  # noqa: PLC0415 - takes long to import
    from gpuledger.agent.main import Agent  # noqa: PLC0415
    from gpuledger.agent.scrape import scraping  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        scrape = await stack.enter_async_context(scraping(settings.exporter_url))
        observer = ExporterObserver(settings.node, scrape, clock=system_clock)
        looking = Agent(settings.node, [observer], epoch=random_id(), clock=system_clock)
        try:
            url = await stack.enter_async_context(serving(settings.listen, looking.health))
        except ListenError as error:
            raise CliError(str(error)) from error
        say(f"The agent of {settings.node} is up; metrics {url}/metrics, health {url}/healthz")
        await looking.run(lambda: _ledger(settings))


@asynccontextmanager
async def _ledger(settings: AgentSettings) -> AsyncIterator[Ledger]:
    from gpuledger.ledger.jetstream import connect_ledger  # noqa: PLC0415 - takes long to import
    from gpuledger.projection.published import CountedLedger  # noqa: PLC0415

    async with connect_ledger(settings.nats_url, name=f"agent of {settings.node}") as ledger:
        yield CountedLedger(ledger)
