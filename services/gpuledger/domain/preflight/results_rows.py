"""The rows of the `preflight` projection: pods with injected checks, attempts at these, and what came of gangs."""

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.domain.fact import TableState
from gpuledger.domain.histories import PREFLIGHT_CHECKS
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.position import Offset

CODES_SEPARATOR: Final = ","


class State(StrEnum):
    """How far an attempt is."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Outcome(StrEnum):
    """What came of an attempt: what checks report (`PreflightResult`), and the last two, which nobody reports."""

    PASSED = "passed"
    FAILED = "failed"
    CONFIG_ERROR = "config-error"
    GANG_TIMEOUT = "gang-timeout"
    NOT_REPORTED = "not-reported"
    SKIPPED = "skipped"
    NOT_RUN = "not-run"
    """Its pod ended before it began."""
    UNKNOWN = "unknown"
    """It ran, and nobody saw how it ended."""


class GangState(StrEnum):
    """The latest that came of a gang."""

    FORMING = "forming"
    COMPLETE = "complete"
    TIMED_OUT = "timed-out"
    NOT_CONFIGURED = "not-configured"


class GangEvent(StrEnum):
    """What may come of a gang; of several at one time in this order."""

    CONFIGURED = "configured"
    TIMED_OUT = "timed-out"
    NOT_CONFIGURED = "not-configured"
    DISSOLVED = "dissolved"


class PreflightPod(NamedTuple):
    """A pod with injected checks, as it was last observed, at `observed_at`; `first_at` is when it first was.

    `pod` is `<namespace>/<name>`. `done` says that no check will run any more. A pod that is only known to be gone has
    no time of an observation. `gone_at` is when it was found gone, unless it was observed later. `over_at` is when it
    was last seen to be done, or else found gone. `attempts` counts its rows of `preflight_check`.
    """

    uid: str
    pod: str
    node: str | None
    ip: str | None
    gang: str | None
    gang_source: str | None
    done: bool
    first_at: datetime | None
    observed_at: datetime | None
    observed_position: Offset
    gone_at: datetime | None
    gone_position: Offset
    over_at: datetime | None
    attempts: int


class PreflightAttempt(NamedTuple):
    """An attempt of a pod at a check; `number` is the place of the check in the pod, `attempt` counts from 0.

    `gang` is its id with the namespace. `outcome` is None until it has ended. `codes` are separated by commas. Times
    that begin and end it are Kubernetes' own. Durations are in microseconds, bandwidths in bytes per second.

    `first_at`, `running_at` and `end_at` are the times of the first observations of it, of it running, and of its end;
    `observed_at` and `position` are those of the last one. `over_at` is when the next attempt was first observed, or
    else when the pod was over; `gone_at` is that of the pod, with which all its attempts end as history.
    """

    uid: str
    check_name: str
    attempt: int
    number: int
    pod: str
    namespace: str
    node: str | None
    gang: str | None
    state: str
    outcome: str | None
    exit_code: int | None
    reason: str | None
    codes: str
    message: str
    started_at: datetime | None
    ended_at: datetime | None
    duration_us: int | None
    gang_wait_us: int | None
    bandwidth_bytes_s: int | None
    threshold_bytes_s: int | None
    first_at: datetime
    running_at: datetime | None
    end_at: datetime | None
    observed_at: datetime
    position: Offset
    over_at: datetime | None
    gone_at: datetime | None


class PreflightGang(NamedTuple):
    """A gang from its first event up to its dissolution; the same id may come again.

    `expected` and `found` are numbers of pods, `waited_us` how long after its first pod had an address it was complete
    or given up, in microseconds. `reason` and `message` say why it could not be configured, while that is the latest.
    `life` counts the gangs of this id up to this one, `events` their rows of `preflight_gang_event`.
    """

    gang: str
    began_at: datetime
    namespace: str
    state: str
    config_map: str | None
    source: str | None
    expected: int | None
    found: int | None
    waited_us: int | None
    completed_at: datetime | None
    timed_out_at: datetime | None
    reason: str | None
    message: str
    dissolved_at: datetime | None
    removed: bool
    last_at: datetime
    last_kind: str
    life: int
    events: int


class PreflightGangEvent(NamedTuple):
    """What the service made of a gang at a time; of two of one kind and time the one recorded later counts."""

    gang: str
    happened_at: datetime
    kind: str
    position: Offset
    config_map: str | None = None
    source: str | None = None
    expected: int | None = None
    found: int | None = None
    complete: bool = False
    waited_us: int | None = None
    reason: str | None = None
    message: str = ""
    removed: bool = False


POD: TableSpec[PreflightPod] = TableSpec(
    "preflight_pod",
    PreflightPod,
    ("uid",),
    retires=("over_at",),
    page_by=("uid",),
    history=PREFLIGHT_CHECKS.name,
    ended_by="gone_at",
)
CHECK: TableSpec[PreflightAttempt] = TableSpec(
    "preflight_check",
    PreflightAttempt,
    ("uid", "check_name", "attempt"),
    retires=("over_at",),
    page_by=("uid",),
    history=PREFLIGHT_CHECKS.name,
    ended_by="gone_at",
)
GANG: TableSpec[PreflightGang] = TableSpec(
    "preflight_gang", PreflightGang, ("gang", "began_at"), retires=("dissolved_at",), page_by=("gang",)
)
GANG_EVENT: TableSpec[PreflightGangEvent] = TableSpec(
    "preflight_gang_event", PreflightGangEvent, ("gang", "happened_at", "kind"), retires=(), page_by=("gang",)
)
SPECS = (POD, CHECK, GANG, GANG_EVENT)


class Preflight(TableState):
    """The state of the projection: pods whose checks are not over, the last attempts at these, and present gangs."""

    def __init__(self) -> None:
        self.pod = Table(POD)
        self.check = Table(CHECK, "uid")
        self.gang = Table(GANG, "gang")
        self.gang_event = Table(GANG_EVENT, "gang")
