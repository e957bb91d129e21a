"""Tables of what containers and claims held, and of pools' availability, by the month in which a row begins.

Only adds. Tables that have rows stay as they are, and nothing waits for a lock on them: the next version of their
projections builds others beside them. Those of a projection that was never built are empty; they are made anew with
the same columns, key and indexes. A build that knows no months writes to them as before: one partition takes all its
rows, until a build that makes months begins the projection.

Revision ID: 0025
Revises: 0024
"""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None
EXPANDS = True

BOOKKEEPING = "gpuledger"
SCHEMA = "gpuledger_live"
TABLES = {
    "container_allocation_history": "allocations",
    "device_allocation": "availability",
    "pool_availability": "availability",
}
"""Of each table, the projection whose rows it has."""

COLUMN = "valid_from"


def upgrade() -> None:
    for table, projection in TABLES.items():
        op.execute(_by_month(table, projection))


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")


def _by_month(table: str, projection: str) -> str:
    """What puts a table by months into the place of one that nobody has ever written to.

    What was built on the table is dropped with it: our views are made anew behind every migration, and so are people's.
    """
    name, plain = f"{SCHEMA}.{table}", f"pg_temp.{table}_plain"
    is_built = f"EXISTS (SELECT FROM {BOOKKEEPING}.projection AS built WHERE built.name = '{projection}')"
    return f"""
            DO $$
            BEGIN
                IF {is_built} THEN
                    RETURN;
                END IF;
                LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE;
                IF {is_built} OR EXISTS (SELECT FROM {name}) THEN
                    RETURN;
                END IF;
                CREATE TEMPORARY TABLE {table}_plain (LIKE {name} INCLUDING ALL);
                DROP TABLE {name} CASCADE;
                CREATE TABLE {name} (LIKE {plain} INCLUDING ALL) PARTITION BY RANGE ({COLUMN});
                CREATE TABLE {name}_any_month PARTITION OF {name} DEFAULT;
                DROP TABLE {plain};
            END
            $$
    """
