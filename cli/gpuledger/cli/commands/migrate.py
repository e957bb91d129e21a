"""`gpuledger migrate` and `gpuledger version`."""

import platform
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from gpuledger.cli.backend import confirm_migrated, contracted, migrated
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import AWAY, patiently, run
from gpuledger.db.errors import SchemaOutdatedError
from gpuledger.db.revision import HEAD_REVISION
from gpuledger.events.catalogue import registry
from gpuledger.ledger.errors import NoLedgerError
from gpuledger.runtime.settings import PARTITIONS, PARTITIONS_MAX
from gpuledger.tools.own_views import lost_views_text

_VERSION = View("component", (Column("component"), Column("version")), "component")


Wait = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for servers that are only starting."),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        min=1,
        max=PARTITIONS_MAX,
        help=f"How many partitions a new ledger has (or ${PARTITIONS}); one that is there keeps its own.",
        show_default="1",
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Change nothing, and fail where there is something to do.")]
Jsonb = Annotated[
    bool,
    typer.Option(
        "--jsonb",
        help="Give up the build before, and make JSON in tables that it left as text jsonb. There is no way back.",
    ),
]


def migrate(
    data_dir: DataDir = None,
    wait: Wait = 0.0,
    check: Check = False,
    partitions: Partitions = None,
    jsonb: Jsonb = False,
) -> ExitCode:
    """Migrate the database schema to the revision that this build needs, and make the ledger where there is none.

    Running it again changes nothing. Its NATS user must be allowed to create and update streams. With --check it waits
    until somebody else has migrated.
    """
    if check and jsonb:
        raise CliError("--check changes nothing, and --jsonb does", "Use one of them", ExitCode.USAGE)
    if check:
        run(patiently(lambda: confirm_migrated(data_dir), wait, (*AWAY, SchemaOutdatedError, NoLedgerError)))
        message("The database and the ledger are as this build needs them.")
        return ExitCode.OK
    result, ledger = run(patiently(lambda: migrated(data_dir, partitions), wait, AWAY))
    before = result.from_revision or "an empty database"
    if result.from_revision == result.to_revision:
        message(f"The database is at revision {result.to_revision}; there is nothing to migrate.")
    else:
        message(f"Migrated from {before} to revision {result.to_revision}.")
    if ledger.is_new:
        message(f"The ledger has the id {ledger.ledger_id}.")
    if not result.has_reader:
        message("The read-only role could not be made: the user in DATABASE_URL may not create roles.")
    if jsonb:
        done = run(contracted(data_dir))
        message(f"JSON is jsonb now in {', '.join(done.tables)}." if done.tables else "All JSON in tables is jsonb.")
        if done.lost_views:
            message(lost_views_text(done.lost_views))
    return ExitCode.OK


def version(output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """Show the versions of gpuledger, its schema and its events."""
    rows = [
        {"component": "gpuledger", "version": version_of("gpuledger")},
        {"component": "database-schema", "version": HEAD_REVISION},
        {"component": "event-types", "version": str(sum(1 for _ in registry.models()))},
        {"component": "python", "version": platform.python_version()},
    ]
    render(rows, _VERSION, output, headers=not no_headers)
