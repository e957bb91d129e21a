"""The gangs whose pods go through preflight checks, folded from the ledger. Pure.

Pods are as watchers see them, gangs as the coordinator has recorded them. A gang forms in rounds: one begins with its
first pod, and with the first one that has an address, for pods may be queued for hours before any check waits; another
where a pod comes to a gang that was complete, begins its checks once more, or leaves it while checks go on. A gang
stays until it is dissolved, so that whoever leads next knows of the ConfigMap that is to be deleted.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from sys import intern
from typing import Final, NamedTuple

import orjson

from gpuledger.domain.fact import Fact, Handlers, TableState, counted_as_recorded, is_late
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.table import Table, TableSpec
from gpuledger.edge.preflight.coordinator.failures import CheckFailure, failures_of
from gpuledger.events.preflight import (
    GangConfigured,
    GangDissolved,
    GangNotConfigured,
    GangPeer,
    GangTimedOut,
    PodPreflightGone,
    PodPreflightObserved,
)
from gpuledger.projection.definition import Projection

NO_GANG: Final = ""
NOBODY: Final = "[]"

FAILURES_KEPT_MAX: Final = 2_000
"""How many failed checks wait until somebody takes them; the oldest are dropped first."""


class GangPod(NamedTuple):
    """A pod with injected checks: `pod` and `gang` are `<namespace>/<name>`; `gang` is empty where it has none.

    `is_done`: no check will run any more; `has_passed`: because all have passed. `failed` are the names of checks that
    ever failed, separated by commas.
    """

    pod: str
    uid: str
    gang: str
    source: str
    size: int | None
    node: str | None
    ip: str | None
    is_done: bool
    has_passed: bool
    failed: str
    observed_at: datetime

    @property
    def name(self) -> str:
        """Its name within its namespace."""
        return self.pod.partition("/")[2]


class GangRow(NamedTuple):
    """A gang. `fact` is the newest fact about its pods: the id of its event, and when it happened and was recorded.

    `round` is the id of the fact that the round began with. `peers` is a JSON array of what the ConfigMap has, with
    `expected` (0: nobody says it), `passed` (so many had passed before) and `is_complete`; `configured_at` is None as
    long as it was never written.
    `writes` are those of the round, `serial` those of the gang. `problem` is why it cannot be configured.
    """

    gang: str
    fact: str
    fact_at: datetime
    fact_recorded_at: datetime
    round: str
    began_at: datetime
    correlation: str
    peers: str = NOBODY
    expected: int = 0
    passed: int = 0
    is_complete: bool = False
    configured_at: datetime | None = None
    writes: int = 0
    serial: int = 0
    has_timed_out: bool = False
    problem: str = ""

    @property
    def namespace(self) -> str:
        """Where its pods and its ConfigMap are."""
        return self.gang.partition("/")[0]

    @property
    def id(self) -> str:
        """Its id within its namespace."""
        return self.gang.partition("/")[2]


GANG_POD: Final = TableSpec("gang_pod", GangPod, ("pod",))
GANG: Final = TableSpec("gang", GangRow, ("gang",))


class Gangs(TableState):
    """The pods with injected checks, and their gangs."""

    def __init__(self) -> None:
        self.gang_pod = Table(GANG_POD, "gang")
        self.gang = Table(GANG)
        for table in (self.gang_pod, self.gang):
            table.never_written()
        self._touched: dict[str, None] = {}
        self._failures: deque[CheckFailure] = deque(maxlen=FAILURES_KEPT_MAX)

    def ids(self) -> list[str]:
        """All gangs that are not dissolved."""
        return sorted(self.gang.rows)

    def get(self, gang: str) -> GangRow | None:
        """A gang."""
        return self.gang.get(gang)

    def pods(self, gang: str) -> list[GangPod]:
        """Its pods, in the order of their names, which is that of ranks."""
        return sorted(self.gang_pod.where("gang", gang), key=lambda one: one.name)

    def active(self, gang: str, besides: str) -> Iterator[GangPod]:
        """Its pods at their checks besides one with a UID, in no order; whoever needs only one stops at the first."""
        for key in self.gang_pod.by["gang"].get(gang):
            pod = self.gang_pod.rows[key]
            if pod.uid != besides and not pod.is_done:
                yield pod

    def touch(self, gang: str) -> None:
        """Something about a gang was recorded."""
        self._touched[gang] = None

    def take_touched(self) -> list[str]:
        """Those about which something was recorded since the last call."""
        touched, self._touched = self._touched, {}
        return list(touched)

    def failed(self, failures: Iterable[CheckFailure]) -> None:
        """Checks have failed for the first time."""
        self._failures.extend(failures)

    def take_failures(self) -> list[CheckFailure]:
        """The checks that failed for the first time since the last call."""
        failures = list(self._failures)
        self._failures.clear()
        return failures


def peers_of_text(text: str) -> tuple[GangPeer, ...]:
    """The peers of a row."""
    return tuple(map(GangPeer.model_validate, orjson.loads(text)))


def text_of_peers(peers: tuple[GangPeer, ...]) -> str:
    """The peers as a row has them."""
    return json_text([one.model_dump() for one in peers])


def _observed(state: Gangs, fact: Fact, data: PodPreflightObserved) -> None:
    event = fact.event
    before = state.gang_pod.get(event.subject)
    if before is not None and is_late(before.observed_at, event.time):
        return
    namespace = event.subject.partition("/")[0]
    gang = intern(f"{namespace}/{data.gang}") if data.gang else NO_GANG
    if before is not None and (before.gang, before.uid) != (gang, data.uid):
        _leave(state, fact, before)
        before = None
    passed = data.done and all(one.state == "ended" and one.exit_code == 0 for one in data.checks)
    failed = _note_failures(state, fact, data, "" if before is None else before.failed)
    state.gang_pod.put(
        GangPod(
            event.subject, data.uid, gang, data.gang_source or "", data.gang_size, data.node, data.ip, data.done,
            passed, failed, event.time,
        )
    )  # fmt: skip
    if not gang:
        return
    if before is None:
        _note(state, fact, gang, lambda row: _begins_round(state, row, data.uid, has_address=data.ip is not None))
    elif data.done and not passed:
        _note(state, fact, gang, lambda row: _breaks_up(state, row, data.uid))
    elif before.is_done and not data.done:
        # Its checks run once more, as after a restart of its node: it finds no peer at theirs.
        _note(state, fact, gang, lambda row: row.is_complete)
    else:
        begins_to_wait = before.ip is None and data.ip is not None
        _note(state, fact, gang, lambda row: begins_to_wait and _waits_alone(state, row, data.uid))


def _note_failures(state: Gangs, fact: Fact, data: PodPreflightObserved, before: str) -> str:
    """Note checks that have not failed before; returns the names of all that ever failed."""
    failed, failures = {one for one in before.split(",") if one}, failures_of(fact, data)
    state.failed([one for one in failures if one.check not in failed])
    return ",".join(sorted({*failed, *(one.check for one in failures)}))


def _gone(state: Gangs, fact: Fact, _data: PodPreflightGone) -> None:
    before = state.gang_pod.get(fact.event.subject)
    if before is not None and not is_late(before.observed_at, fact.event.time):
        _leave(state, fact, before)


def _leave(state: Gangs, fact: Fact, pod: GangPod) -> None:
    state.gang_pod.delete(pod.pod)
    if pod.gang:
        _note(state, fact, pod.gang, lambda row: _breaks_up(state, row, pod.uid))


def _note(state: Gangs, fact: Fact, gang: str, begins_round: Callable[[GangRow], bool] = lambda _row: False) -> None:
    """Note a fact about a gang, which may begin a round."""
    event, row = fact.event, state.get(gang)
    recorded_at = counted_as_recorded(event, fact.recorded_ns)
    correlation = event.correlation_id or event.id
    if row is None:
        row = GangRow(gang, event.id, event.time, recorded_at, event.id, event.time, correlation)
    elif begins_round(row):
        row = _new_round(row, event.id, event.time)
    state.gang.put(row._replace(fact=event.id, fact_at=event.time, fact_recorded_at=recorded_at))
    state.touch(gang)


def _begins_round(state: Gangs, row: GangRow, newcomer: str, *, has_address: bool) -> bool:
    """Whether a pod comes to a gang that was complete without it, or of which no other pod is at its checks."""
    if row.is_complete:
        return newcomer not in {one.uid for one in peers_of_text(row.peers)}
    is_alone = next(state.active(row.gang, newcomer), None) is None
    return is_alone or (has_address and _waits_alone(state, row, newcomer))


def _waits_alone(state: Gangs, row: GangRow, uid: str) -> bool:
    """Whether a pod is the first of an incomplete gang whose checks can wait for others: no other has an address."""
    return not row.is_complete and all(one.ip is None for one in state.active(row.gang, uid))


def _breaks_up(state: Gangs, row: GangRow, uid: str) -> bool:
    """Whether a pod leaves a complete gang, or ends in it, while others are at their checks."""
    if not row.is_complete or uid not in {one.uid for one in peers_of_text(row.peers)}:
        return False
    return next(state.active(row.gang, uid), None) is not None


def _new_round(row: GangRow, began: str, began_at: datetime) -> GangRow:
    return row._replace(round=began, began_at=began_at, is_complete=False, writes=0, has_timed_out=False, problem="")


def _configured(state: Gangs, fact: Fact, data: GangConfigured) -> None:
    row = state.get(fact.event.subject)
    if row is None:
        return
    if row.is_complete and not data.complete:
        row = _new_round(row, fact.event.id, fact.event.time)
    peers = text_of_peers(data.peers)
    state.gang.put(
        row._replace(
            peers=peers, expected=data.expected, passed=data.passed, is_complete=data.complete,
            configured_at=fact.event.time, writes=row.writes + 1, serial=row.serial + 1, problem="",
        )
    )  # fmt: skip
    state.touch(row.gang)


def _timed_out(state: Gangs, fact: Fact, _data: GangTimedOut) -> None:
    row = state.get(fact.event.subject)
    if row is not None:
        state.gang.put(row._replace(has_timed_out=True))
        state.touch(row.gang)


def _not_configured(state: Gangs, fact: Fact, data: GangNotConfigured) -> None:
    row = state.get(fact.event.subject)
    if row is not None:
        state.gang.put(row._replace(problem=data.reason))
        state.touch(row.gang)


def _dissolved(state: Gangs, fact: Fact, _data: GangDissolved) -> None:
    """It is over, unless a pod has come meanwhile: then it begins anew."""
    row = state.get(fact.event.subject)
    if row is None:
        return
    if state.pods(row.gang):
        state.gang.put(
            GangRow(
                row.gang, row.fact, row.fact_at, row.fact_recorded_at, row.fact, row.fact_at, row.correlation,
                serial=row.serial + 1,
            )
        )  # fmt: skip
    else:
        state.gang.delete(row.gang)
    state.touch(row.gang)


HANDLERS: Handlers = {
    PodPreflightObserved: _observed,
    PodPreflightGone: _gone,
    GangConfigured: _configured,
    GangTimedOut: _timed_out,
    GangNotConfigured: _not_configured,
    GangDissolved: _dissolved,
}


class GangsProjection(Projection):
    """Folds the gangs, which stay in memory, and in snapshots."""

    name = "gangs"
    version = 2
    specs = ()
    handlers = HANDLERS
    state_class = Gangs
