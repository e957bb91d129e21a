"""Every table that this build works with, as SQLAlchemy metadata, to compare with what the migrations make.

The projections' tables follow from the rows that they are made of, while migrations are frozen text.
"""

from datetime import datetime
from types import NoneType
from typing import Any, get_args, get_type_hints

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import TypeEngine

from gpuledger.db.json_columns import JSON_COLUMNS
from gpuledger.db.revision import BOOKKEEPING
from gpuledger.domain import event_index
from gpuledger.domain.bootstrap import facts as bootstrap_facts
from gpuledger.domain.devices import fold as devices
from gpuledger.domain.devices import nodes
from gpuledger.domain.dra import rows as availability
from gpuledger.domain.health import rows as health
from gpuledger.domain.inventory import facts as inventory_facts
from gpuledger.domain.machineconfig import history_rows as updates
from gpuledger.domain.machineconfig import rows as rollout
from gpuledger.domain.maintenance import rows as maintenance
from gpuledger.domain.pools import rows as pools
from gpuledger.domain.preflight import results_rows as preflight
from gpuledger.domain.quarantine import rows as quarantine
from gpuledger.domain.remediation import rows as remediation
from gpuledger.domain.seals import chain as seals
from gpuledger.domain.sharing import offered_rows as sharing
from gpuledger.domain.sharing import rows as shares
from gpuledger.domain.sources import fold as sources
from gpuledger.domain.table import Sum, TableSpec
from gpuledger.domain.workloads import allocations
from gpuledger.domain.workloads import fold as workloads
from gpuledger.events.position import Offset

LIVE = "gpuledger_live"
"""The projections' tables that reports read."""


PROJECTIONS: dict[str, tuple[TableSpec[Any], ...]] = {
    "devices": devices.SPECS,
    "nodes": nodes.SPECS,
    "workloads": workloads.SPECS,
    "allocations": allocations.SPECS,
    "sources": sources.SPECS,
    "inventory": inventory_facts.SPECS,
    "bootstrap": bootstrap_facts.SPECS,
    "availability": availability.SPECS,
    "incidents": health.SPECS,
    "preflight": preflight.SPECS,
    "shares": shares.SPECS,
    "updates": updates.SPECS,
    "pools": pools.SPECS,
    "seals": seals.SPECS,
    "health": quarantine.SPECS,
    "maintenance": maintenance.SPECS,
    "remediation": remediation.SPECS,
    "rollout": rollout.SPECS,
    "sharing": sharing.SPECS,
    "index": event_index.SPECS,
}
"""Each projection's tables."""

SECONDARY_INDEXES: dict[str, tuple[tuple[str, ...], ...]] = {
    "installation": (("slot",),),
    "failure": (("device", "failed_at"),),
    "allocation": (("device",),),
    "device_allocation": (("driver", "pool", "device"),),
    "gpu_device_assignment": (("pool",),),
    "container_allocation_history": (("device",),),
    "incident": (("incident",), ("device",)),
    "preflight_check": (("pod",),),
    "shared_pod": (("pod",),),
    "machine_config_update": (("pool",),),
}
"""Few, because every row flushed pays for them. Named as PostgreSQL would name them, as copies of a table are."""

OTHER_INDEXES: dict[str, tuple[tuple[str, ...], ...]] = {
    "device": (("hash", "serial"), ("hash", "uuid")),
    "installation": (("brin", "valid_from", "valid_to"),),
    "failure": (("brin", "failed_at"),),
    "slot_history": (("brin", "valid_from"),),
    "node_history": (("brin", "valid_from"),),
    "container_allocation_history": (("brin", "valid_from", "valid_to"),),
    "contradiction": (("hash", "subject"), ("hash", "first"), ("hash", "second")),
    "allocation": (("brin", "valid_from", "valid_to"),),
    "workload_fact": (("brin", "happened_at"),),
    "device_history": (("brin", "valid_from"),),
    "occupancy_history": (("brin", "valid_from"),),
    "incident": (("brin", "opened_at", "ended_at"),),
    "health_report": (("brin", "reported_at"),),
    "preflight_check": (("brin", "first_at"),),
    "shared_allocation": (("brin", "valid_from"),),
}
"""Those that are no B-trees: the kind and the columns. They cost a flush less."""

OPEN = {
    "installation": "device",
    "node_history": "node",
    "allocation": "workload",
    "workload": "workload",
    "container_allocation_history": "allocation",
    "container_allocation_report": "allocation",
    "device_allocation": "claim",
    "pool_availability": "pool",
    "incident": "node",
    "preflight_pod": "uid",
    "preflight_check": "uid",
    "preflight_gang": "gang",
    "shared_node_history": "node",
    "shared_pod": "uid",
    "shared_pod_fact": "uid",
    "shared_allocation": "uid",
    "shared_checkpoints_history": "node",
    "machine_config_rollout": "pool",
    "machine_config_update": "node",
}
"""A column, mostly of the key, of an index that has the rows alone that have not retired."""

ADDED = {
    "source.taken": "0",
    "source.rejected": "0",
    "source.unknown": "0",
    "gap.unknown_length": "false",
    "bootstrap_device.ignored": "false",
    "gpu_device.inventory_id": "",
    "inventory_nfd.surveyed": "0",
    "pool_node.aside": "false",
    "pool_node.shares": "false",
    "maintenance_request.drain": "",
    "maintenance_request.drain_result": "",
    "node_fault.codes": "",
    "remediation_fault.codes": "",
    "remediation_fault.cleared": "",
    "sharing_hardware.declared": "",
    "health_report.unhealthy_codes": "",
    "health_report.healthy_codes": "",
    "incident.standing": "",
}
"""Defaults of columns that were added later: an earlier build leaves them out of its rows."""

TEXT = Text(collation="C")
"""Text sorts by code point, as the folds compare it, whatever the server's locale."""

TIME = DateTime(timezone=True)
_TYPES: dict[type, TypeEngine[Any]] = {
    str: TEXT,
    datetime: TIME,
    int: BigInteger(),
    bool: Boolean(),
    Offset: BigInteger(),
    Sum: Numeric(),
}

metadata = MetaData()


def _projected(spec: TableSpec[Any]) -> Table:
    hints = get_type_hints(spec.row)
    table = Table(
        spec.name,
        metadata,
        *(_column(spec.name, name, hints[name]) for name in spec.columns),
        PrimaryKeyConstraint(*spec.key),
        schema=LIVE,
    )
    for columns in SECONDARY_INDEXES.get(spec.name, ()):
        Index(f"{spec.name}_{'_'.join(columns)}_idx", *(table.c[column] for column in columns))
    for kind, *names in OTHER_INDEXES.get(spec.name, ()):
        Index(f"{spec.name}_{'_'.join(names)}_idx", *(table.c[name] for name in names), postgresql_using=kind)
    if spec.name in OPEN:
        is_open = text(" OR ".join(f"{column} IS NULL" for column in spec.retires or ()))
        Index(f"{spec.name}_{OPEN[spec.name]}_idx", table.c[OPEN[spec.name]], postgresql_where=is_open)
    return table


def _column(table: str, name: str, hint: Any) -> Column[Any]:
    kinds = get_args(hint) or (hint,)
    (kind,) = (kind for kind in kinds if kind is not NoneType)
    type_ = JSONB() if name in JSON_COLUMNS.get(table, ()) else _TYPES[kind]
    return Column(name, type_, nullable=NoneType in kinds, server_default=ADDED.get(f"{table}.{name}"))


for _specs in PROJECTIONS.values():
    for _spec in _specs:
        _projected(_spec)

PROJECTION = Table(
    "projection",
    metadata,
    Column("name", TEXT, nullable=False),
    Column("edition", TEXT, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("incarnation", TEXT, nullable=False),
    Column("updated_at", TIME, nullable=False, server_default=func.now()),
    Column("ledger_id", TEXT),
    Column("partition", SmallInteger, nullable=False, server_default="0"),
    Column("last_position", BigInteger),
    Column("last_event_id", TEXT),
    Column("last_digest", TEXT),
    PrimaryKeyConstraint("name", "edition"),
    CheckConstraint("edition IN ('live', 'next', 'prev')", name="projection_edition_check"),
    schema=BOOKKEEPING,
)

LOST_VIEW = Table(
    "lost_view",
    metadata,
    Column("name", TEXT, nullable=False),
    Column("owner", TEXT, nullable=False),
    Column("definition", TEXT, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("lost_at", TIME, nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("name"),
    schema=BOOKKEEPING,
)

SEEN = Table(
    "seen",
    metadata,
    Column("projection", TEXT, nullable=False),
    Column("edition", TEXT, nullable=False),
    Column("source", TEXT, nullable=False),
    Column("epoch", TEXT, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("holes", ARRAY(BigInteger), nullable=False),
    Column("began", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("projection", "edition", "source", "epoch"),
    schema=BOOKKEEPING,
)

ENFORCED_RULE = Table(
    "enforced_rule",
    metadata,
    Column("projection", TEXT, nullable=False),
    Column("edition", TEXT, nullable=False),
    Column("rule", TEXT, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    PrimaryKeyConstraint("projection", "edition", "rule"),
    schema=BOOKKEEPING,
)

DECIDER = Table(
    "decider",
    metadata,
    Column("projection", TEXT, nullable=False),
    Column("epoch", TEXT, nullable=False),
    Column("next_number", BigInteger, nullable=False),
    Column("settle_until", BigInteger, nullable=False),
    PrimaryKeyConstraint("projection"),
    schema=BOOKKEEPING,
)

OUTBOX = Table(
    "outbox",
    metadata,
    Column("projection", TEXT, nullable=False),
    Column("id", TEXT, nullable=False),
    Column("subject", TEXT, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("status", TEXT, nullable=False),
    Column("message_id", TEXT),
    Column("sequence", BigInteger),
    Column("decided_at", TIME, nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("projection", "id"),
    CheckConstraint("status IN ('held', 'ready', 'sent')", name="outbox_status_check"),
    Index("outbox_projection_number_idx", "projection", "number"),
    schema=BOOKKEEPING,
)

SNAPSHOT = Table(
    "snapshot",
    metadata,
    Column("name", TEXT, nullable=False),
    Column("layout", TEXT, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("ledger_id", TEXT, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("event_id", TEXT, nullable=False),
    Column("event_digest", TEXT, nullable=False),
    Column("pieces_digest", TEXT, nullable=False),
    Column("written_at", TIME, nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("name", "layout"),
    schema=BOOKKEEPING,
)

SNAPSHOT_PIECE = Table(
    "snapshot_piece",
    metadata,
    Column("name", TEXT, nullable=False),
    Column("layout", TEXT, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("part", TEXT, nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("name", "layout", "number"),
    ForeignKeyConstraint(
        ["name", "layout"],
        [SNAPSHOT.c.name, SNAPSHOT.c.layout],
        name="snapshot_piece_snapshot_fkey",
        ondelete="CASCADE",
    ),
    schema=BOOKKEEPING,
)

NUMBERS_SEEN_POSITION = Table(
    "numbers_seen_position",
    metadata,
    Column("partition", SmallInteger, nullable=False, autoincrement=False),
    Column("ledger_id", TEXT, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("last_event_id", TEXT),
    Column("last_digest", TEXT),
    Column("complete_from", BigInteger, nullable=False),
    Column("updated_at", TIME, nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("partition"),
    schema=BOOKKEEPING,
)

NUMBERS_SEEN = Table(
    "numbers_seen",
    metadata,
    Column("partition", SmallInteger, nullable=False),
    Column("source", TEXT, nullable=False),
    Column("epoch", TEXT, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("holes", ARRAY(BigInteger), nullable=False),
    Column("began", BigInteger, nullable=False),
    PrimaryKeyConstraint("partition", "source", "epoch"),
    schema=BOOKKEEPING,
)

NUMBER_REFUSED = Table(
    "number_refused",
    metadata,
    Column("partition", SmallInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("reason", TEXT),
    PrimaryKeyConstraint("partition", "position"),
    schema=BOOKKEEPING,
)

EXPORT_CURSOR = Table(
    "export_cursor",
    metadata,
    Column("name", TEXT, nullable=False),
    Column("ledger_id", TEXT, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("partition", SmallInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("event_id", TEXT),
    Column("event_digest", TEXT),
    Column("updated_at", TIME, nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("name"),
    schema=BOOKKEEPING,
)

EXPORT_DEAD_LETTER = Table(
    "export_dead_letter",
    metadata,
    Column("name", TEXT, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("partition", SmallInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("event_id", TEXT, nullable=False),
    Column("type", TEXT, nullable=False),
    Column("subject", TEXT, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("refused_at", TIME, nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("name", "generation", "partition", "position"),
    schema=BOOKKEEPING,
)
