"""The `report` schema: documented views and functions over the projections' tables, and who may read them.

A view follows a table and not its name, so everything here is made anew whenever tables changed places, in that very
transaction. Views that people made on ours, or on the projections' tables, are made anew with them; other functions
and types in the schema are dropped, and so is what builds on them.
"""

from collections.abc import Collection
from hashlib import sha256
from importlib import resources

from gpuledger.db.engine import AsyncConnection, Connection
from gpuledger.db.locks import VIEWS_LOCK, lock_key

REPORTS = (
    "fleet",
    "fleet-by-day",
    "lifetimes",
    "mtbf",
    "offenders",
    "gpu-hours",
    "gpu-hours-by-day",
    "allocation",
    "queue-waits",
    "contradictions",
    "device-allocations",
    "dra-gpu-hours",
    "availability",
    "exhausted",
    "never-released",
    "pool-pods",
    "container-allocations",
    "container-hours-by-day",
    "device-errors",
    "incidents",
    "mttr",
    "mttd",
    "repeated-codes",
    "flapping",
    "bad-slots",
    "lemons",
    "preflight",
    "preflight-checks",
    "preflight-failures",
    "preflight-gangs",
    "shared-gpus",
    "shared-allocations",
    "packing",
    "fragmentation",
    "oversubscription",
    "config-rollouts",
    "config-updates",
    "config-drift",
)
"""The reports by the names a person uses."""

FUNCTIONS_AT = (
    "devices_at",
    "slots_at",
    "nodes_at",
    "workloads_at",
    "failures_at",
    "contradictions_at",
    "installations_at",
    "allocations_at",
    "container_allocations_at",
    "incidents_at",
    "preflight_checks_at",
    "preflight_gangs_at",
    "shared_devices_at",
    "shared_allocations_at",
)
"""Functions that take a time, and give the rows as they were then."""

READER_ROLE = "gpuledger_reader"

_FILES = (
    "keep_views",
    "drop_all",
    "has_versions",
    "has_day_totals",
    "is_kept",
    "asked_at",
    "location_of",
    "lifetimes",
    "allocation",
    "allocation_changes",
    "gpu_hours",
    "gpu_hours_by_day",
    "fleet",
    "fleet_by_day",
    "mtbf",
    "offenders",
    "queue_waits",
    "contradictions",
    "device_allocations",
    "dra_gpu_hours",
    "availability",
    "exhausted",
    "never_released",
    "pool_pods",
    "container_allocations",
    "container_changes",
    "container_hours_by_day",
    "device_errors",
    "incidents",
    "mttr",
    "mttd",
    "repeated_min",
    "repeated_codes",
    "flapping_min",
    "flapping",
    "bad_slot_devices_min",
    "bad_slots",
    "lemon_incidents_min",
    "lemons",
    "preflight_checks",
    "preflight",
    "preflight_failures",
    "preflight_gangs",
    "shared_gpus",
    "shared_allocations",
    "packing",
    "fragmentation",
    "oversubscription",
    "config_updates",
    "config_rollouts",
    "config_drift",
    "installations_at",
    *(name for name in FUNCTIONS_AT if name != "installations_at"),
    "grants",
    "restore_views",
)
"""In the order in which they build on each other."""

_OURS = ",".join(report.replace("-", "_") for report in REPORTS)

_SCHEMA_COMMENT = "Documented views and functions; made anew by every migration and rebuild. Statements:"

_BEGIN = f"SELECT pg_advisory_xact_lock({lock_key(VIEWS_LOCK)})"


def texts_of(names: Collection[str]) -> list[str]:
    """What makes these views and functions, by their names in SQL, in the order in which they build on each other."""
    folder = resources.files("gpuledger.db") / "sql"
    return [(folder / f"{name}.sql").read_text() for name in _FILES if name in names]


def view_of(report: str) -> str:
    """The view behind a report's name, which may be written with hyphens or underscores."""
    return f"report.{report.replace('-', '_')}"


def view_statements() -> list[bytes]:
    """What makes the schema anew, to be executed in this order, without parameters, in one transaction.

    The transaction takes `VIEWS_LOCK` before it locks any table, or two of them may wait for each other.
    """
    texts = _texts()
    sealed = f"COMMENT ON SCHEMA report IS '{_SCHEMA_COMMENT} {_digest(texts)}'"
    return [_BEGIN.encode(), *texts, sealed.encode()]


def keep_views_statements() -> list[bytes]:
    """What notes people's views and drops them, before tables change places; `view_statements` makes them anew.

    All are for one transaction, which has `VIEWS_LOCK`.
    """
    return [_BEGIN.encode(), _text("keep_views"), _text("drop_kept_views")]


def keep_views(connection: Connection) -> None:
    """Note people's views before a migration, for the transaction under way."""
    connection.execute(_text("keep_views"))


def are_current(connection: Connection) -> bool:
    """Whether the schema was made by this build's statements."""
    row = connection.execute("SELECT obj_description(to_regnamespace('report'), 'pg_namespace')").fetchone()
    return row is not None and row[0] == f"{_SCHEMA_COMMENT} {_digest(_texts())}"


def recreate_views(connection: Connection) -> None:
    """Make the views anew in one transaction, or within the one under way."""
    with connection.transaction():
        for statement in view_statements():
            connection.execute(statement)


async def keep_views_async(connection: AsyncConnection) -> None:
    """Execute `keep_views_statements` in the transaction under way."""
    for statement in keep_views_statements():
        await connection.execute(statement)


async def drop_views_async(connection: AsyncConnection) -> None:
    """Note people's views and drop them, and ours, in the transaction under way; `recreate_views_async` makes all anew.

    It is for changes that PostgreSQL refuses where a view reads a table.
    """
    await keep_views_async(connection)
    await connection.execute(_text("drop_all"))


async def recreate_views_async(connection: AsyncConnection) -> None:
    """`recreate_views` for asyncio."""
    async with connection.transaction():
        for statement in view_statements():
            await connection.execute(statement)


def _texts() -> list[bytes]:
    return [_text(name) for name in _FILES]


def _text(name: str) -> bytes:
    text = (resources.files("gpuledger.db") / "sql" / f"{name}.sql").read_bytes()
    return text.replace(b"%(ours)s", _OURS.encode()) if name == "keep_views" else text


def _digest(texts: list[bytes]) -> str:
    return sha256(b"\0".join(texts)).hexdigest()[:16]
