"""`gpuledger migrate` and `gpuledger version`."""

import platform
from importlib.metadata import version as version_of

from gpuledger.cli.backend import migrated
from gpuledger.cli.errors import ExitCode
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import run
from gpuledger.db.revision import HEAD_REVISION
from gpuledger.events.catalogue import registry

_VERSION = View("component", (Column("component"), Column("version")), "component")


def migrate(data_dir: DataDir = None) -> ExitCode:
    """Migrate the database schema to the revision that this build needs, and make the ledger where there is none.

    Running it again changes nothing. Its NATS user must be allowed to create and update streams.
    """
    result, ledger = run(migrated(data_dir))
    before = result.from_revision or "an empty database"
    if result.from_revision == result.to_revision:
        message(f"The database is at revision {result.to_revision}; there is nothing to migrate.")
    else:
        message(f"Migrated from {before} to revision {result.to_revision}.")
    if ledger.is_new:
        message(f"The ledger has the id {ledger.ledger_id}.")
    if not result.has_reader:
        message("The read-only role could not be made: the user in DATABASE_URL may not create roles.")
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
