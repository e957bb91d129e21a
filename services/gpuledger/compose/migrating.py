"""Migrates the database in a process of its own: Alembic's memory would stay with this one for as long as it serves."""

import os
import sys
from typing import Final

from gpuledger.compose.children import run_module
from gpuledger.db.errors import (
    DatabaseError,
    DatabaseUnavailableError,
    DatabaseUrlError,
    LockedError,
    MigrationError,
    SchemaUnknownError,
)
from gpuledger.runtime.settings import DATABASE_URL

FIRST_CODE: Final = 10
"""Exit codes from here on are the errors, in their order; others are those of Python itself."""

ERRORS: Final[tuple[type[DatabaseError], ...]] = (
    DatabaseError,
    DatabaseUrlError,
    DatabaseUnavailableError,
    LockedError,
    MigrationError,
    SchemaUnknownError,
)


async def migrate_apart(database_url: str) -> None:
    """Bring the schema up to date, as `gpuledger.db.migrate.migrate` does.

    Raises:
        DatabaseError: the same ones, with the same messages.
    """
    code, message = await run_module(__name__, (), {DATABASE_URL: database_url})
    if code == 0:
        return
    index = code - FIRST_CODE
    raise ERRORS[index](message) if 0 <= index < len(ERRORS) else MigrationError(f"The migration ended: {message}.")


def main() -> int:
    """Migrate the database of the environment; what goes wrong is the exit code and the last line of stderr."""
    from gpuledger.db.migrate import migrate  # noqa: PLC0415 - only this process is to have it in memory

    try:
        migrate(os.environ[DATABASE_URL])
    except DatabaseError as error:
        sys.stderr.write(" ".join(str(error).splitlines()) + "\n")
        return FIRST_CODE + next((index for index, one in enumerate(ERRORS) if type(error) is one), 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
