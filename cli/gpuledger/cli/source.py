"""Decides whether a command reads the ledger, or Kubernetes alone; no other module does.

Whoever works with `kubectl` alone has a kubeconfig and no ledger. The commands that can answer for the present then
read the cluster, say so, and never start an empty ledger for it.
"""

import os
from contextlib import suppress
from pathlib import Path

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import message
from gpuledger.ledger.errors import NoLedgerError
from gpuledger.local.servers.datadir import DataDir
from gpuledger.runtime.settings import Settings, SettingsError, read_settings
from gpuledger.tools.cluster import KubeAccess, has_cluster
from gpuledger.tools.present.refusal import ANOTHER_WAY

PRESENT_ONLY = (
    "There is no ledger here, so this is the present, read from Kubernetes; the past was not asked. "
    f"For the past: {ANOTHER_WAY[0].lower()}{ANOTHER_WAY[1:]}."
)


def is_present_only(data_dir: Path | None, access: KubeAccess | None) -> bool:
    """Whether there is no ledger, and Kubernetes is read alone; without `access` it may not be.

    Raises:
        NoLedgerError: there is neither a ledger nor a cluster to read.
    """
    settings = read_settings(os.environ, data_dir)
    if _has_ledger(settings):
        return False
    if access is None or not has_cluster(access):
        lacks = "--no-kube leaves Kubernetes out" if access is None else "there is no kubeconfig"
        raise NoLedgerError(
            f"There is no ledger in {settings.data_dir}, and {lacks}. {ANOTHER_WAY}; for the present, set KUBECONFIG."
        )
    return True


def announce_present() -> None:
    """Say on stderr that only the present is read."""
    message(PRESENT_ONLY)


def announce_unless_ledger(data_dir: Path | None, access: KubeAccess) -> None:
    """Say so for a kind that always comes from Kubernetes, if there is no ledger that could be asked for its past."""
    with suppress(SettingsError):
        if has_cluster(access) and not _has_ledger(read_settings(os.environ, data_dir)):
            announce_present()


def refuse_in_present(option: str, value: object, hint: str = ANOTHER_WAY) -> None:
    """Refuse an option that needs a ledger.

    Raises:
        CliError: it is given.
    """
    if value:
        what = f"{option} does not apply: there is no ledger here, and Kubernetes has no past"
        raise CliError(what, hint, ExitCode.USAGE)


def _has_ledger(settings: Settings) -> bool:
    """Whether servers are named, or the data directory has a ledger; neither is asked."""
    return settings.servers is not None or DataDir(settings.data_dir).has_ledger()
