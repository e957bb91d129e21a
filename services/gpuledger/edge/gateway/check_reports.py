"""What preflight checks in pods of tenants may report over TCP, by the ledger's facts about their pods.

See `gpuledger.edge.gateway.checked_pods` for why a token is not enough.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from gpuledger.api.preflight import MONITOR
from gpuledger.edge.gateway.checked_pods import CheckAttempt, CheckedPod, CheckedPods
from gpuledger.edge.gateway.recorder import ReportOf
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.payload import Payload
from gpuledger.healthreports.checks import CHECK_EVENTS_MAX, check_report_denial
from gpuledger.healthreports.coalescing import digest
from gpuledger.healthreports.errors import InvalidReportError, ReportDeniedError
from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from gpuledger.healthreports.translate import places

Attempts = dict[str, CheckAttempt]
"""The checks that may report, by the names of their containers."""


def allowed_attempts(pods: CheckedPods, pod: CheckedPod, request: HealthEvents, now: datetime) -> Attempts:
    """The checks of a pod that may report, all reports of a request being theirs.

    Raises:
        CheckUnconfirmedError: the ledger does not say yet that one runs.
        InvalidReportError: the request has more reports than one may have.
        ReportDeniedError: a check may not report that.
    """
    if len(request.events) > CHECK_EVENTS_MAX:
        raise InvalidReportError(
            f"events: there are {len(request.events)}; a preflight check sends {CHECK_EVENTS_MAX} at most."
        )
    attempts = pods.reporting(pod, now)
    for place, event in places(request):
        if (reason := check_report_denial(event, place, attempts)) is not None:
            raise ReportDeniedError(reason)
    return attempts


def take_results(pods: CheckedPods, attempts: Attempts, reports: Sequence[ReportOf]) -> None:
    """Note what lets a check pass before it is recorded, so that nothing else of that check is taken from now on.

    Raises:
        ReportDeniedError: a check has reported its result already.
    """
    digests = defaultdict[str, set[str]](set)
    for one in reports:
        digests[one.report.data.check].add(digest(one.report.data))
    for check, own in digests.items():
        pods.refuse_after_result(attempts[check], own)
    passing = {one.report.data.check for one in reports if lets_pass(one.report.data)}
    for check in passing:
        pods.close(attempts[check], digests[check])


def note_result(pods: CheckedPods, data: Payload, at: datetime) -> None:
    """Note what another replica has recorded, and when it was reported."""
    if isinstance(data, NodeHealthReported) and data.monitor == MONITOR and data.reporter and lets_pass(data):
        pods.close_recorded(data.reporter, data.check, digest(data), at)


def lets_pass(data: NodeHealthReported) -> bool:
    """Whether the check may end with 0 after this report: it is healthy, or only stored."""
    return data.healthy or data.strategy != "execute-remediation"
