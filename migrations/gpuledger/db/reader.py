"""The role that may read the tables and reports, and nothing else.

Roles belong to the server and not to one database, so it may be there already, or not be ours to make.
"""

import psycopg

from gpuledger.db.engine import Connection
from gpuledger.db.views import READER_ROLE

_IS_SUPERUSER = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
_EXISTS = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)"


def ensure_reader(connection: Connection) -> bool:
    """Make the role where it is missing and that is permitted; says whether it is there.

    Its rights are part of `gpuledger.db.views.view_statements`.
    """
    if not _exists(connection) and not _try(connection, f"CREATE ROLE {READER_ROLE} NOLOGIN"):
        return _exists(connection)
    if connection.execute(_IS_SUPERUSER).fetchone() != (True,):
        _try(connection, f"GRANT {READER_ROLE} TO CURRENT_USER")
    return True


def _exists(connection: Connection) -> bool:
    return connection.execute(_EXISTS, [READER_ROLE]).fetchone() == (True,)


def _try(connection: Connection, statement: str) -> bool:
    try:
        with connection.transaction():
            connection.execute(statement.encode())
    except (
        psycopg.errors.InsufficientPrivilege,
        psycopg.errors.DuplicateObject,
        psycopg.errors.UniqueViolation,  # two databases of one server are being migrated
    ):
        return False
    return True
