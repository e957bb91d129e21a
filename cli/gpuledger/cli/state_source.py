"""Opens what a command reads the state from: the ledger or Kubernetes alone, as `source` decides.

Apart from the decision, for commands that read tables need none of the states.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gpuledger.cli.backend import open_backend
from gpuledger.cli.render import message
from gpuledger.cli.source import announce_present, is_present_only, refuse_in_present
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.present.source import KubernetesSource
from gpuledger.tools.queries.source import LedgerSource, StateSource


def show_notes(source: StateSource) -> None:
    """Say on stderr what could not be read."""
    for note in source.notes:
        message(note)


@asynccontextmanager
async def open_source(
    data_dir: Path | None,
    command: str,
    access: KubeAccess | None,
    *,
    at: str | None = None,
    namespace: str | None = None,
) -> AsyncIterator[StateSource]:
    """What a command reads the state from. `at` is its option for a time in the past.

    Raises:
        CliError: a time in the past is given, and there is no ledger.
        NoLedgerError: there is neither a ledger nor a cluster to read.
    """
    if is_present_only(data_dir, access) and access is not None:
        refuse_in_present("--at", at)
        announce_present()
        yield KubernetesSource(access, namespace)
        return
    async with open_backend(data_dir, command, asks=True) as backend:
        yield LedgerSource(backend)
