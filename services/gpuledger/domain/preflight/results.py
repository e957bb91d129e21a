"""Folds what watchers see of pods with injected checks into attempts, in event time.

An observation says of each check how far its present attempt is, and where it runs, how the one before it ended. Of
each attempt the latest observation counts, so rows do not depend on the order of recording. Observations that come in
order need the last attempts alone; others leave memory, and are read back for a late one.

A pod and its attempts end as history together, when its object is gone. Where that was shortened, facts of before count
no more.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from gpuledger.api.preflight import ExitCode
from gpuledger.domain.fact import AbsentRowsError, Fact, Handlers, Touched, storable
from gpuledger.domain.preflight.results_rows import (
    CHECK,
    CODES_SEPARATOR,
    POD,
    Outcome,
    Preflight,
    PreflightAttempt,
    PreflightPod,
    State,
)
from gpuledger.events.position import ORIGIN, Offset, is_after
from gpuledger.events.preflight import (
    CheckOutcome,
    PodPreflightGone,
    PodPreflightObserved,
    PreflightCheck,
    PreflightResult,
)

MICROSECONDS_PER_S: Final = 1_000_000
BYTES_PER_GB: Final = 1_000_000_000
_MICROSECOND: Final = timedelta(microseconds=1)

_OUTCOMES: Final[Mapping[int, CheckOutcome]] = {
    ExitCode.PASSED: "passed",
    ExitCode.FAILED: "failed",
    ExitCode.CONFIGURATION: "config-error",
    ExitCode.GANG_TIMEOUT: "gang-timeout",
}
"""Of checks that leave no result, by exit code; any other one blames no hardware."""


PASSING: Final = frozenset[CheckOutcome](("passed", "skipped"))
"""Outcomes of checks that end with 0."""


class _Seen(NamedTuple):
    """What an observation says of an attempt: columns of `PreflightAttempt`."""

    number: int
    state: str
    outcome: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    codes: str = ""
    message: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_us: int | None = None
    gang_wait_us: int | None = None
    bandwidth_bytes_s: int | None = None
    threshold_bytes_s: int | None = None


def touched(state: Preflight, fact: Fact, data: PodPreflightObserved | PodPreflightGone) -> Touched:
    """The attempts of a pod; nothing where its checks go on and the fact is later than all others about it."""
    if data.uid is None:
        return ()
    pod = state.pod.get(data.uid)
    if pod is not None and pod.over_at is None and _is_next(pod, fact) and isinstance(data, PodPreflightObserved):
        return ()
    return _rows_of(data.uid)


def _is_next(pod: PreflightPod, fact: Fact) -> bool:
    """Whether a fact is later than all others about a pod."""
    return all(at is None or at < fact.event.time for at in (pod.observed_at, pod.gone_at))


def _counts(state: Preflight, fact: Fact) -> bool:
    """Whether a fact is of a time since which the history is kept."""
    return state.pod.begins is None or fact.event.time >= state.pod.begins


def _observed(state: Preflight, fact: Fact, data: PodPreflightObserved) -> None:
    if not _counts(state, fact):
        return
    pod = state.pod.get(data.uid)
    seen = dict(_seen_of(data))
    if pod is not None and (not _is_next(pod, fact) or pod.gone_at is not None or _has_left(state, data.uid, seen)):
        _require(state, pod)
    more = sum(_put_attempt(state, fact, data, key, one) for key, one in seen.items())
    pod = _with_observation(pod or _new_pod(fact, data.uid), fact, data)
    _put_pod(state, pod._replace(attempts=pod.attempts + more))


def _gone(state: Preflight, fact: Fact, data: PodPreflightGone) -> None:
    """The end of a pod's object, and of all its attempts; a fact that names no object is about none of them."""
    if data.uid is None or not _counts(state, fact):
        return
    pod = state.pod.get(data.uid)
    if pod is not None:
        _require(state, pod)
    pod = pod or _new_pod(fact, data.uid)
    if pod.gone_at is None or _is_newer(fact, pod.gone_at, pod.gone_position):
        _put_pod(state, pod._replace(gone_at=fact.event.time, gone_position=fact.sequence))


def _new_pod(fact: Fact, uid: str) -> PreflightPod:
    """A pod that nothing is known of."""
    return PreflightPod(
        uid, fact.event.subject, None, None, None, None, False, None, None, ORIGIN, None, ORIGIN, None, 0
    )


def _with_observation(pod: PreflightPod, fact: Fact, data: PodPreflightObserved) -> PreflightPod:
    """The pod with an observation, of which the latest says how it is."""
    time = fact.event.time
    pod = pod._replace(first_at=time if pod.first_at is None else min(pod.first_at, time))
    if pod.observed_at is not None and not _is_newer(fact, pod.observed_at, pod.observed_position):
        return pod
    return pod._replace(
        node=data.node,
        ip=data.ip,
        gang=data.gang,
        gang_source=data.gang_source,
        done=data.done,
        observed_at=time,
        observed_position=fact.sequence,
    )


def _put_pod(state: Preflight, pod: PreflightPod) -> None:
    """Put a pod, and say of its attempts in memory when they were over; an observation behind its end undoes that."""
    observed_at, gone_at = pod.observed_at, pod.gone_at
    if observed_at is not None and gone_at is not None:
        same = observed_at == gone_at and is_after(pod.observed_position, pod.gone_position)
        if observed_at > gone_at or same:
            pod = pod._replace(gone_at=None, gone_position=ORIGIN)
    over_at = observed_at if pod.done and observed_at else pod.gone_at
    state.pod.put(pod._replace(over_at=over_at))
    attempts = sorted(state.check.where("uid", pod.uid), key=_attempt_of, reverse=True)
    following: dict[str, datetime] = {}
    for row in attempts:
        next_at = following.get(row.check_name)
        settled = _settled(row, over_at if next_at is None else next_at)._replace(gone_at=pod.gone_at)
        if settled != row:
            state.check.put(settled)
        following[row.check_name] = row.first_at if next_at is None else min(next_at, row.first_at)


def _settled(row: PreflightAttempt, over_at: datetime | None) -> PreflightAttempt:
    """An attempt that is over since then, whether somebody saw its end or not."""
    outcome = row.outcome
    if row.state != State.ENDED:
        unseen = Outcome.UNKNOWN if row.state == State.RUNNING else Outcome.NOT_RUN
        outcome = None if over_at is None else unseen.value
    return row._replace(over_at=over_at, outcome=outcome)


_Key = tuple[str, int]
"""The name of a check, and which attempt at it."""


def _seen_of(data: PodPreflightObserved) -> Iterator[tuple[_Key, _Seen]]:
    """What an observation says of attempts.

    A check that runs again has the end of the attempt before it; one that waits to be tried again has its own.
    """
    for number, check in enumerate(data.checks):
        runs = State(check.state) is State.RUNNING
        if runs and check.attempt and _has_end(check):
            yield (check.name, check.attempt - 1), _end_of(check, number)
        if not runs and _has_end(check):
            yield (check.name, check.attempt), _end_of(check, number)
        else:
            started_at = None if not runs or _has_end(check) else _stored(check.started_at)
            yield (check.name, check.attempt), _Seen(number, check.state, started_at=started_at)


def _has_end(check: PreflightCheck) -> bool:
    return State(check.state) is State.ENDED or check.exit_code is not None or check.ended_at is not None


def _end_of(check: PreflightCheck, number: int) -> _Seen:
    """How an attempt ended, as the check reported it, or else as Kubernetes has it.

    A check that left word that it passed and then ended otherwise has not passed: its pod does not go on.
    """
    result = check.result or PreflightResult(outcome=_outcome_of(check.exit_code))
    is_refuted = result.outcome in PASSING and bool(check.exit_code)
    outcome = _outcome_of(check.exit_code) if is_refuted else result.outcome
    started_at, ended_at = _stored(check.started_at), _stored(check.ended_at)
    duration_us = scaled(result.duration_s, MICROSECONDS_PER_S)
    if duration_us is None and started_at is not None and ended_at is not None:
        duration_us = max(0, (ended_at - started_at) // _MICROSECOND)
    return _Seen(
        number,
        State.ENDED.value,
        outcome,
        check.exit_code,
        check.reason,
        CODES_SEPARATOR.join(result.codes),
        result.message,
        started_at,
        ended_at,
        duration_us,
        scaled(result.gang_wait_s, MICROSECONDS_PER_S),
        scaled(result.bandwidth_gbps, BYTES_PER_GB),
        scaled(result.threshold_gbps, BYTES_PER_GB),
    )


def _outcome_of(exit_code: int | None) -> CheckOutcome:
    return "not-reported" if exit_code is None else _OUTCOMES.get(exit_code, "not-reported")


def _stored(time: datetime | None) -> datetime | None:
    return None if time is None else storable(time)


def scaled(value: float | None, factor: int) -> int | None:
    """A number in a smaller unit, `factor` of which are one of its own, as rows keep it."""
    return None if value is None else round(value * factor)


def _put_attempt(state: Preflight, fact: Fact, data: PodPreflightObserved, key: _Key, seen: _Seen) -> bool:
    """Put what a fact says of an attempt; says whether it is a new one. The latest fact about an attempt counts."""
    row, seen_now = state.check.get((data.uid, *key)), _attempt(fact, data, key, seen)
    if row is None:
        state.check.put(seen_now)
        return True
    newest = seen_now if _is_newer(fact, row.observed_at, row.position) else row
    state.check.put(
        newest._replace(
            first_at=min(row.first_at, fact.event.time),
            running_at=_first(row.running_at, seen_now.running_at),
            end_at=_first(row.end_at, seen_now.end_at),
        )
    )
    return False


def _attempt(fact: Fact, data: PodPreflightObserved, key: _Key, seen: _Seen) -> PreflightAttempt:
    """An attempt as a fact alone has it."""
    pod, time = fact.event.subject, fact.event.time
    namespace = pod.partition("/")[0]
    gang = None if data.gang is None else f"{namespace}/{data.gang}"
    number, *columns = seen
    last = (time, fact.sequence, None, None)
    running_at, end_at = (time if seen.state == state else None for state in (State.RUNNING, State.ENDED))
    return PreflightAttempt._make(
        (data.uid, *key, number, pod, namespace, data.node, gang, *columns, time, running_at, end_at, *last)
    )


def _first(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((time for time in (one, other) if time is not None), default=None)


def _is_newer(fact: Fact, at: datetime, position: Offset) -> bool:
    """Whether a fact counts over one of this time and position."""
    return at < fact.event.time or (at == fact.event.time and is_after(fact.sequence, position))


def _has_left(state: Preflight, uid: str, seen: Iterable[_Key]) -> bool:
    """Whether an attempt may have left memory: those that others follow have."""
    last: dict[str, int] = {}
    for row in state.check.where("uid", uid):
        last[row.check_name] = max(row.attempt, last.get(row.check_name, 0))
    return any(attempt < last.get(name, 0) and state.check.get((uid, name, attempt)) is None for name, attempt in seen)


def _require(state: Preflight, pod: PreflightPod) -> None:
    """Check that all attempts of a pod are in memory.

    Raises:
        AbsentRowsError: some have left it.
    """
    if len(state.check.by["uid"].get(pod.uid)) < pod.attempts:
        raise AbsentRowsError(_rows_of(pod.uid))


def _rows_of(uid: str) -> list[tuple[str, str, str]]:
    return [(spec.name, "uid", uid) for spec in (POD, CHECK)]


def _attempt_of(row: PreflightAttempt) -> int:
    return row.attempt


HANDLERS: Final[Handlers] = {PodPreflightObserved: _observed, PodPreflightGone: _gone}
