"""`gpuledger doctor`: checks this machine, the embedded servers, the ledger and the tables, and reports what to do.

It starts no server and repairs nothing, so that it shows the current state.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import typer

from gpuledger.cli.errors import ExitCode
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, render
from gpuledger.cli.run import run
from gpuledger.local.servers.datadir import DataDir as DataDirectory
from gpuledger.local.servers.datadir import read_running
from gpuledger.local.servers.errors import EmbeddedError
from gpuledger.local.servers.nats import find_binary
from gpuledger.local.servers.postgres_binaries import find_binaries
from gpuledger.runtime.settings import Servers, Settings, read_settings
from gpuledger.tools.doctor import Check, DatabaseChecks, LedgerChecks, Status, failed, ok, warning
from gpuledger.tools.module_settings import module_check
from gpuledger.tools.queries.backend import all_projections
from gpuledger.tools.replica_checks import replica_check

VIEW = View("check", (Column("check"), Column("status"), Column("detail")), name_key="check")


def doctor(data_dir: DataDir = None, output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """Check the installation, the servers and the tables. Exits with 1 if something does not work."""
    settings = read_settings(os.environ, data_dir)
    found = run(_examine(settings))
    render((check._asdict() for check in found), VIEW, output, headers=not no_headers)
    if any(check.status is Status.FAILED for check in found):
        raise typer.Exit(ExitCode.ERROR)


async def _examine(settings: Settings) -> list[Check]:
    found = list(host_checks(settings))
    servers = settings.servers or _running(settings.data_dir)
    if servers is None:
        return [*found, warning("ledger and tables", "They were not checked, because no server runs.")]
    return [*found, *[check async for check in _servers(servers, None if settings.servers else settings.data_dir)]]


def _running(data_dir: Path) -> Servers | None:
    running = read_running(data_dir) if data_dir.exists() else None
    if running is None:
        return None
    return Servers(running.endpoints.nats_url, running.endpoints.database_url)


async def _servers(servers: Servers, data_dir: Path | None) -> AsyncIterator[Check]:
    ledger = LedgerChecks(servers.nats_url, data_dir, servers.nats_identity)
    async for check in ledger.run():
        yield check
    async with ledger.found() as log:
        if log.ledger is not None:
            yield await module_check(log.ledger)
        async for check in DatabaseChecks(servers.database_url, all_projections(), log).run():
            yield check
        if servers.database_read_url is not None:
            yield await replica_check(servers.database_read_url, all_projections(), log.ledger)


PYTHON_MIN = (3, 11)
VERSION_TIMEOUT_S = 10.0
GIB = 1024**3
FREE_WARN_BYTES = 5 * GIB
FREE_MIN_BYTES = GIB // 2


def host_checks(settings: Settings) -> Iterator[Check]:
    """Python, and the embedded servers' programs and directory where these are used."""
    yield python_check(sys.version_info[:2])
    if settings.servers is not None:
        yield ok("servers", "NATS_URL and DATABASE_URL are set; no embedded servers are used.")
        return
    yield _program("nats-server", find_binary)
    yield _program("postgresql", lambda: find_binaries() / "postgres")
    yield from directory_checks(settings.data_dir)


def python_check(version: tuple[int, ...]) -> Check:
    """Whether gpuledger runs on this Python."""
    if version < PYTHON_MIN:
        required = ".".join(map(str, PYTHON_MIN))
        return failed("python", f"{platform.python_version()} is too old. Install Python {required} or newer.")
    return ok("python", f"{platform.python_version()} at {sys.executable}")


def _program(name: str, find: Callable[[], Path]) -> Check:
    try:
        program = find()
        done = subprocess.run(
            (str(program), "--version"), capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True
        )
    except EmbeddedError as error:
        return failed(name, str(error))
    except (OSError, subprocess.SubprocessError) as error:
        return failed(name, f"It cannot be run ({error}). Install gpuledger again.")
    return ok(name, f"{done.stdout.strip()} at {program}")


def directory_checks(path: Path) -> Iterator[Check]:
    """Whether the data directory can be used, which process uses it, and how much space is left."""
    if not path.exists():
        yield warning("data directory", f"{path} is not there yet. `gpuledger up` makes it.")
        return
    directory = DataDirectory(path)
    try:
        directory.check()
    except EmbeddedError as error:
        yield failed("data directory", str(error))
        return
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield failed("data directory", f"{path} cannot be written. Change its owner, or choose another --data-dir.")
        return
    yield ok("data directory", f"{path}: {_format(directory)}")
    yield _in_use(directory)
    yield disk_check(shutil.disk_usage(path).free)


def _format(directory: DataDirectory) -> str:
    if not directory.marker.exists():
        return "empty"
    return f"format {json.loads(directory.marker.read_text(encoding='utf-8'))['format']}"


def _in_use(directory: DataDirectory) -> Check:
    running = directory.running()
    if running is not None:
        return ok("servers", f"Those of `gpuledger {running.command}` (pid {running.pid}, since {running.started_at})")
    if directory.lock.held():
        return warning("servers", "Another gpuledger command is just starting or stopping them. Try again in a moment.")
    return warning("servers", "They do not run. `gpuledger up` starts them; other commands do so for themselves.")


def disk_check(free_bytes: int) -> Check:
    """Whether there is space for the log to grow."""
    detail = f"{free_bytes / GIB:.1f} GiB are free"
    if free_bytes < FREE_MIN_BYTES:
        return failed("disk", f"{detail}, too little to write. Make room, or move the data directory.")
    if free_bytes < FREE_WARN_BYTES:
        return warning("disk", f"{detail}; the log only grows. Make room soon.")
    return ok("disk", detail)
