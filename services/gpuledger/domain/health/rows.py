"""The rows of the `incidents` projection: checks, their reports, incidents, and when nodes and cards left."""

from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.domain.fact import TableState
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.position import Offset

HEALTHY, NODE_GONE, CARD_LEFT = "healthy", "node-gone", "card-left"
"""What ended an incident: a healthy report, or that its node or card is no longer there."""

CODES_SEPARATOR: Final = ","


class HealthCheck(NamedTuple):
    """A check of a monitor on a node; `scope` stands for the three names.

    `last_at` is the time of its latest report. `report_rows` and `incident_rows` count the rows of the other tables,
    so that the fold knows whether all are in memory; `open` counts the incidents that have not ended.
    """

    scope: str
    node: str
    monitor: str
    check_name: str
    last_at: datetime
    report_rows: int
    incident_rows: int
    open: int


class HealthReport(NamedTuple):
    """What a check reported on an entity at a time. Unhealthy reports of one time are one row, `reports` counts them.

    `entity` is empty for the node; a healthy report on it concerns all entities of the check. `codes` are separated by
    commas. `recorded_at` is when the ledger got it, and `position` where it stands there. `unhealthy_codes` are those
    that it has stand (an empty one where a report names none), `healthy_codes` those that it clears; a healthy one
    without any clears all.
    """

    scope: str
    entity: str
    reported_at: datetime
    position: Offset
    recorded_at: datetime
    event_id: str
    healthy: bool
    fatal: bool
    device: str | None
    component: str | None
    codes: str
    message: str
    action: str
    strategy: str
    reporter: str | None
    reports: int
    unhealthy_codes: str
    healthy_codes: str


class Incident(NamedTuple):
    """An entity that a check found unhealthy, from the first such report up to, not including, `ended_at`.

    `incident` is its id, which follows from node, monitor, check, entity and `opened_at`. `recorded_at` is when the
    ledger got the first report. `reports` counts the unhealthy ones, `fatal` is true if any was, `codes` are those of
    all, and `action` is the last one recommended. `standing` are the codes that have still to be cleared, an empty one
    for reports without codes; an incident that has ended has none.
    """

    scope: str
    entity: str
    opened_at: datetime
    incident: str
    node: str
    monitor: str
    check_name: str
    device: str | None
    component: str | None
    opened_position: Offset
    recorded_at: datetime
    ended_at: datetime | None
    ended_by: str | None
    last_at: datetime
    reports: int
    fatal: bool
    codes: str
    first_cause: str
    last_cause: str
    action: str
    standing: str


class Departure(NamedTuple):
    """A node, or with `device` a card of it, was no longer there from this time on."""

    node: str
    device: str
    left_at: datetime


CHECK = TableSpec("health_check", HealthCheck, ("scope",))
REPORT: TableSpec[HealthReport] = TableSpec(
    "health_report", HealthReport, ("scope", "entity", "reported_at"), retires=(), page_by=("scope",)
)
INCIDENT: TableSpec[Incident] = TableSpec(
    "incident", Incident, ("scope", "entity", "opened_at"), retires=("ended_at",), page_by=("scope",)
)
DEPARTURE = TableSpec("health_departure", Departure, ("node", "device", "left_at"))
SPECS = (CHECK, REPORT, INCIDENT, DEPARTURE)


class Health(TableState):
    """The state of the health projection: all checks, and of incidents those that are open."""

    def __init__(self) -> None:
        self.check = Table(CHECK, "node")
        self.report = Table(REPORT, "scope")
        self.incident = Table(INCIDENT, "scope")
        self.departure = Table(DEPARTURE, "node")
