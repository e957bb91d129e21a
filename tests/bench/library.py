"""The peer: the PyPI library `eventsourcing` projecting the same events into the same PostgreSQL.

It is used as its documentation shows: aggregates trigger events, an application saves them in PostgreSQL, and a
`ProjectionRunner` hands each event to a projection whose view writes its rows and the tracking record in one
transaction. The rows are those of the devices projection, but contradictions and late facts are not looked for, which
spares the library the reads that they would take.
"""

from collections.abc import Sequence
from datetime import datetime
from time import perf_counter
from typing import Any, Self
from uuid import NAMESPACE_OID, UUID, uuid5

import psycopg
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate
from eventsourcing.persistence import Tracking
from eventsourcing.postgres import PostgresDatastore, PostgresTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.utils import get_topic
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL

from bench.fleet import Happening

SCHEMA = "peer"
EVENTS_PER_SAVE = 100
WAIT_S = 300.0

_TABLES = {
    "device": "device text PRIMARY KEY, state text, slot text, in_service_since timestamptz, serial text, "
    "first_seen_at timestamptz, removed_at timestamptz, lives bigint, failures bigint, last_failed_at timestamptz",
    "installation": "device text, slot text, valid_from timestamptz, valid_to timestamptz, retired boolean, "
    "serial text, PRIMARY KEY (device, slot, valid_from)",
    "failure": "event_id uuid, number bigint, device text, slot text, kind text, failed_at timestamptz, "
    "PRIMARY KEY (event_id, number)",
    "slot": "slot text PRIMARY KEY, node text, slot_index bigint, device text, lives bigint, "
    "first_seen_at timestamptz, vacated_at timestamptz",
    "slot_history": "slot text, valid_from timestamptz, node text, slot_index bigint, PRIMARY KEY (slot, valid_from)",
}

_BEGIN_INSTALLATION = SQL(
    "INSERT INTO peer.installation VALUES (%(device)s, %(slot)s, %(at)s, NULL, false, %(serial)s) "
    "ON CONFLICT DO NOTHING"
)
_DEVICE_INSERTED = SQL(
    "INSERT INTO peer.device VALUES (%(device)s, 'InService', %(slot)s, %(at)s, %(serial)s, %(at)s, NULL, 1, 0, NULL) "
    "ON CONFLICT (device) DO UPDATE SET state = 'InService', slot = excluded.slot, "
    "in_service_since = excluded.in_service_since, lives = device.lives + 1"
)
_SLOT_TAKEN = SQL(
    "INSERT INTO peer.slot VALUES (%(slot)s, NULL, NULL, %(device)s, 1, %(at)s, NULL) ON CONFLICT (slot) "
    "DO UPDATE SET device = excluded.device, lives = slot.lives + 1"
)
_END_INSTALLATION = SQL(
    "UPDATE peer.installation SET valid_to = %(at)s, retired = %(retired)s "
    "WHERE device = %(device)s AND slot = %(slot)s AND valid_to IS NULL"
)
_DEVICE_REMOVED = SQL(
    "UPDATE peer.device SET state = %(state)s, slot = NULL, in_service_since = NULL, removed_at = %(at)s "
    "WHERE device = %(device)s"
)
_SLOT_VACATED = SQL("UPDATE peer.slot SET device = NULL, vacated_at = %(at)s WHERE slot = %(slot)s")
_FAILED = SQL(
    "INSERT INTO peer.failure VALUES (%(id)s, %(number)s, %(device)s, %(slot)s, %(kind)s, %(at)s) "
    "ON CONFLICT DO NOTHING"
)
_DEVICE_FAILED = SQL(
    "UPDATE peer.device SET failures = failures + 1, last_failed_at = greatest(last_failed_at, %(at)s) "
    "WHERE device = %(device)s"
)
_SLOT_VERSION = SQL(
    "INSERT INTO peer.slot_history VALUES (%(slot)s, %(at)s, %(node)s, %(index)s) ON CONFLICT DO NOTHING"
)
_SLOT_DECLARED = SQL(
    "INSERT INTO peer.slot VALUES (%(slot)s, %(node)s, %(index)s, NULL, 0, %(at)s, NULL) ON CONFLICT (slot) "
    "DO UPDATE SET node = excluded.node, slot_index = excluded.slot_index"
)


class Thing(Aggregate):
    """A device or a slot, known by its name."""

    class Created(Aggregate.Created):
        name: str

    class Inserted(Aggregate.Event):
        device: str
        slot: str
        serial: str
        at: datetime

    class Removed(Aggregate.Event):
        device: str
        slot: str
        retired: bool
        at: datetime

    class Failed(Aggregate.Event):
        device: str
        slot: str
        kind: str
        at: datetime

    class Declared(Aggregate.Event):
        slot: str
        node: str
        index: int
        at: datetime

    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    def create_id(name: str) -> UUID:
        return uuid5(NAMESPACE_OID, name)


EVENTS: dict[str, type[Aggregate.Event]] = {
    "inserted": Thing.Inserted,
    "removed": Thing.Removed,
    "failed": Thing.Failed,
    "declared": Thing.Declared,
}


class Registry(Application[UUID]):
    """The application that the events are recorded in."""


class FleetView(PostgresTrackingRecorder):
    """The rows."""

    def __init__(self, datastore: PostgresDatastore, **arguments: Any) -> None:
        super().__init__(datastore, **arguments)
        for table, columns in _TABLES.items():
            definition = SQL(f"{SCHEMA}.{table} ({columns})")
            self.sql_create_statements.append(SQL("CREATE TABLE IF NOT EXISTS {}").format(definition))

    def write(self, statements: Sequence[SQL], values: dict[str, Any], tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            for statement in statements:
                cursor.execute(statement, values, prepare=True)
            self._insert_tracking(cursor, tracking)


class FleetProjection(Projection[FleetView]):
    """One event, one transaction."""

    name = "fleet"
    topics = tuple(get_topic(event) for event in EVENTS.values())

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        values = {**vars(domain_event), "id": domain_event.originator_id, "number": domain_event.originator_version}
        statements: tuple[SQL, ...]
        match domain_event:
            case Thing.Inserted():
                statements = (_BEGIN_INSTALLATION, _DEVICE_INSERTED, _SLOT_TAKEN)
            case Thing.Removed():
                values["state"] = "Retired" if domain_event.retired else "Removed"
                statements = (_END_INSTALLATION, _DEVICE_REMOVED, _SLOT_VACATED)
            case Thing.Failed():
                statements = (_FAILED, _DEVICE_FAILED)
            case Thing.Declared():
                statements = (_SLOT_VERSION, _SLOT_DECLARED)
        self.view.write(statements, values, tracking)


class LibraryPeer:
    """Records the happenings once; `project` projects them anew each time."""

    def __init__(self, database_url: str, happenings: Sequence[Happening]) -> None:
        self._database_url = database_url
        self._happenings = happenings
        self._environment = _environment(database_url)
        self._last = 0

    def __enter__(self) -> Self:
        self._execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}")
        application = Registry(self._environment)
        things: dict[str, Thing] = {}
        with application:
            for at in range(0, len(self._happenings), EVENTS_PER_SAVE):
                touched = {_trigger(things, happening) for happening in self._happenings[at : at + EVENTS_PER_SAVE]}
                application.save(*(things[name] for name in sorted(touched)))
            self._last = application.recorder.max_notification_id() or 0
        return self

    def __exit__(self, *_: object) -> None:
        self._execute(f"DROP SCHEMA {SCHEMA} CASCADE")

    def project(self) -> float:
        """Events per second, from the start of the runner to the last event's row."""
        tables = [*_TABLES, "fleet_tracking"]
        self._execute(*(f"DROP TABLE IF EXISTS {SCHEMA}.{table}" for table in tables))
        began = perf_counter()
        with ProjectionRunner(
            application_class=Registry,
            projection_class=FleetProjection,
            view_class=FleetView,
            env=self._environment,
        ) as runner:
            runner.wait(self._last, timeout=WAIT_S)
        return len(self._happenings) / (perf_counter() - began)

    def _execute(self, *statements: str) -> None:
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


def _trigger(things: dict[str, Thing], happening: Happening) -> str:
    name, data = happening.subject, happening.data
    thing = things.get(name) or things.setdefault(name, Thing(name))
    values = {field: getattr(data, field) for field in _FIELDS[data.EVENT]}
    about = {"slot": name} if data.EVENT == "declared" else {"device": name}
    thing.trigger_event(EVENTS[data.EVENT], at=happening.time, **about, **values)
    return name


_FIELDS = {
    "inserted": ("slot", "serial"),
    "removed": ("slot", "retired"),
    "failed": ("slot", "kind"),
    "declared": ("node", "index"),
}


def _environment(database_url: str) -> dict[str, str]:
    given = conninfo_to_dict(database_url)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(given["dbname"]),
        "POSTGRES_HOST": str(given["host"]),
        "POSTGRES_PORT": str(given["port"]),
        "POSTGRES_USER": str(given["user"]),
        "POSTGRES_PASSWORD": str(given["password"]),
        "POSTGRES_SCHEMA": SCHEMA,
    }
