"""Errors of the database.

DatabaseError
├── DatabaseUrlError
├── DatabaseUnavailableError
│   └── LockLostError
├── PoolerError
├── LockedError
├── MigrationError
├── DatabaseSchemaError
│   ├── SchemaOutdatedError
│   └── SchemaUnknownError
├── RecoveryConflictError
└── QueryError
"""


class DatabaseError(Exception):
    """The database cannot be used; the message says what to do next and never holds a password."""


class DatabaseUrlError(DatabaseError):
    """PostgreSQL does not understand the URL."""


class DatabaseUnavailableError(DatabaseError):
    """No connection to PostgreSQL can be made, or the one there was is lost."""


class LockLostError(DatabaseUnavailableError):
    """The connection that held a lock is lost; another process may hold it by now."""


class PoolerError(DatabaseError):
    """A pooler between us and PostgreSQL lets several connections share one session."""


class LockedError(DatabaseError):
    """Another session holds what this one needs."""


class MigrationError(DatabaseError):
    """The schema could not be brought up to date; nothing of it was changed."""


class DatabaseSchemaError(DatabaseError):
    """The database's schema is not the one this build works with."""


class SchemaOutdatedError(DatabaseSchemaError):
    """The schema is missing or that of an older build."""


class SchemaUnknownError(DatabaseSchemaError):
    """The schema is that of another, newer build."""


class RecoveryConflictError(DatabaseError):
    """A standby canceled a query time and again, because it was in the way of its primary's changes."""


class QueryError(DatabaseError):
    """PostgreSQL refused a query."""
