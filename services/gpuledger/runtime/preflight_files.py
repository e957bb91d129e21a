"""Where the webhook of preflight checks finds its configuration and listens, by the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PREFLIGHT_FILE: Final = "GPULEDGER_PREFLIGHT_FILE"
PREFLIGHT_LISTEN: Final = "GPULEDGER_PREFLIGHT_LISTEN"
PREFLIGHT_OWNER: Final = "GPULEDGER_PREFLIGHT_OWNER"


@dataclass(frozen=True, slots=True)
class PreflightFiles:
    """The webhook of preflight checks: the file with its configuration (None: no checks), and its address.

    Without `listen` a real cluster gets none. Beside the embedded API server it listens at an address of its own.
    `owner` is the ClusterRole with which the webhook configuration and the ConfigMaps of gangs go; None: they stay.
    """

    file: Path | None = None
    listen: str | None = None
    owner: str | None = None


def read_preflight_files(environ: Mapping[str, str]) -> PreflightFiles:
    """The file, the address and the owner that the environment names."""
    file = environ.get(PREFLIGHT_FILE)
    return PreflightFiles(
        Path(file) if file else None, environ.get(PREFLIGHT_LISTEN) or None, environ.get(PREFLIGHT_OWNER) or None
    )
