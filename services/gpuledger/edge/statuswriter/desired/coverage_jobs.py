"""When a waiting Job of `gpu-nfd-coverage` is started, and what is announced of one that has ended. Pure.

The chart keeps one Job that is suspended; starting it is all that is decided here. What has run already is read from
the Jobs themselves, so that a restart, or another leader, starts nothing twice.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.reasons import EventReason
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.events.series import Occurrence
from gpuledger.edge.statuswriter.objects import Document, Key, Kind

COMPLETE, FAILED = "Complete", "Failed"
NANOSECONDS: Final = 1_000_000_000


class CoverageJob(NamedTuple):
    """A Job that compares labels. Neither started nor ended: it waits, or Kubernetes is about to start it."""

    namespace: str
    name: str
    version: str
    is_suspended: bool
    started_at: datetime | None
    ended_at: datetime | None
    has_passed: bool

    @property
    def waits(self) -> bool:
        """Whether it waits to be started."""
        return self.is_suspended and self.ended_at is None

    @property
    def runs(self) -> bool:
        """Whether it is running, or about to."""
        return not self.is_suspended and self.ended_at is None


def coverage_job(obj: Document) -> CoverageJob:
    """The Job as the API server has it."""
    metadata, status = mapping(obj, "metadata"), mapping(obj, "status")
    ended = {one["type"]: one for one in items(status, "conditions") if one.get("status") == "True"}
    last = ended.get(COMPLETE) or ended.get(FAILED)
    return CoverageJob(
        metadata["namespace"],
        metadata["name"],
        metadata["resourceVersion"],
        mapping(obj, "spec").get("suspend") is True,
        _time(status.get("startTime")),
        None if last is None else _time(last.get("lastTransitionTime")),
        COMPLETE in ended,
    )


def nodes_to_check(state: DesiredState, now: datetime, after: timedelta) -> Mapping[str, datetime]:
    """The nodes whose inventory stays incomplete, as `overdue` of `job_to_start`.

    None while the module is disabled, and where nobody is to label nodes.
    """
    prerequisites = state.module.get(MODULE_CONFIG)
    if not state.enabled or (prerequisites is not None and not prerequisites.met):
        return {}
    return state.coverage.overdue(now, after)


def job_to_start(
    jobs: Iterable[CoverageJob], overdue: Mapping[str, datetime], now: datetime, repeat: timedelta
) -> CoverageJob | None:
    """The Job to start, if any.

    `overdue` says of every node whose inventory stays incomplete since when it needs a check. One is due for what no
    earlier Job can have seen, and again after `repeat`: labels that the ledger does not have may have changed.
    """
    found = list(jobs)
    waiting = [one for one in found if one.waits]
    if not overdue or not waiting or any(one.runs for one in found):
        return None
    last = max((one.started_at for one in found if one.started_at is not None), default=None)
    is_due = last is None or max(overdue.values()) > last or last + repeat <= now
    return min(waiting) if is_due else None


def results(job: CoverageJob, overdue: Mapping[str, datetime]) -> Iterator[Occurrence]:
    """What is announced of a Job that has ended, about each node that it was to check and that is still incomplete."""
    if job.started_at is None or job.ended_at is None:
        return
    note = result_of(job)
    recorded_ns = int(job.ended_at.timestamp()) * NANOSECONDS
    for node in sorted(node for node, since in overdue.items() if since <= job.started_at):
        key, reason = Key(Kind.NODE, node), EventReason.LABELS_CHECKED
        yield Occurrence(key, reason, job.name, note, not job.has_passed, job.ended_at, recorded_ns)


def result_of(job: CoverageJob) -> str:
    """How it ended, in words, and the command that shows more."""
    found = (
        "found every label of all GPU nodes as the NodeFeatureRule derives it"
        if job.has_passed
        else "found labels that differ from what the NodeFeatureRule derives, or could not compare them"
    )
    return f"The Job {job.name} {found}: `kubectl --namespace {job.namespace} logs job/{job.name}`."


def _time(value: Any) -> datetime | None:  # noqa: ANN401 - a field of JSON
    return datetime.fromisoformat(value) if isinstance(value, str) else None
