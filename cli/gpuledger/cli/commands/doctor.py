"""`gpuledger doctor`: looks at everything that gpuledger needs, says what is wrong and what to do, and mends nothing.

It starts no server, so that it shows what is.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import typer

from gpuledger.cli.doctor.check import Check, Status, warning
from gpuledger.cli.doctor.database import DatabaseChecks
from gpuledger.cli.doctor.host import host_checks
from gpuledger.cli.doctor.ledger import LedgerChecks
from gpuledger.cli.errors import ExitCode
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, render
from gpuledger.cli.run import run
from gpuledger.local.servers.datadir import read_running
from gpuledger.runtime.settings import Servers, Settings, read_settings
from gpuledger.tools.queries.backend import all_projections

VIEW = View("check", (Column("check"), Column("status"), Column("detail")), name_key="check")


def doctor(data_dir: DataDir = None, output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """Check the installation, the servers and the tables; exit code 1 when something does not work."""
    settings = read_settings(os.environ, data_dir)
    found = run(_examine(settings))
    render((check._asdict() for check in found), VIEW, output, headers=not no_headers)
    if any(check.status is Status.FAILED for check in found):
        raise typer.Exit(ExitCode.ERROR)


async def _examine(settings: Settings) -> list[Check]:
    found = list(host_checks(settings))
    servers = settings.servers or _running(settings.data_dir)
    if servers is None:
        return [*found, warning("ledger and tables", "They were not looked at, because no server runs.")]
    return [*found, *[check async for check in _servers(servers, None if settings.servers else settings.data_dir)]]


def _running(data_dir: Path) -> Servers | None:
    running = read_running(data_dir) if data_dir.exists() else None
    if running is None:
        return None
    return Servers(running.endpoints.nats_url, running.endpoints.database_url)


async def _servers(servers: Servers, data_dir: Path | None) -> AsyncIterator[Check]:
    ledger = LedgerChecks(servers.nats_url, data_dir)
    async for check in ledger.run():
        yield check
    async for check in DatabaseChecks(servers.database_url, all_projections(), ledger.head).run():
        yield check
