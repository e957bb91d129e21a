"""What rebuilds under way have in the database, and how to end them."""

from support.projections import execute


def leftovers(url: str) -> list[tuple[object, ...]]:
    """What a rebuild under way has in the database."""
    tables = execute(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'gpuledger_next'")
    rows = execute(url, "SELECT name FROM gpuledger.projection WHERE edition = 'next'")
    return tables + rows + execute(url, "SELECT source FROM gpuledger.seen WHERE edition = 'next'")


def cut_rebuilds(url: str) -> None:
    """End the sessions of rebuilds."""
    sessions = "FROM pg_stat_activity WHERE application_name LIKE '%%rebuild%%' AND datname = current_database()"
    execute(url, f"SELECT pg_terminate_backend(pid) {sessions}")
