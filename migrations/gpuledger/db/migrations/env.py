"""Runs migrations over the connection that `gpuledger.db.migrate` hands over; it never connects by itself."""

from alembic import context

from gpuledger.db.revision import BOOKKEEPING

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("Migrations run through `gpuledger migrate`.")
context.configure(connection=connection, version_table_schema=BOOKKEEPING)
with context.begin_transaction():
    context.run_migrations()
