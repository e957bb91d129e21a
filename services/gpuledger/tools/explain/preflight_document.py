"""A pod's preflight checks explained as a document, for `-o json` and the page. Pure."""

from typing import Any

from gpuledger.domain.preflight.pod_checks import PodChecks
from gpuledger.domain.preflight.results_rows import CODES_SEPARATOR, PreflightAttempt, PreflightGang
from gpuledger.tools.explain.preflight_wording import checks_words

Document = dict[str, Any]


def checks_document(found: PodChecks) -> Document:
    """The stage of the checks, the last attempt at each, and the gang with the pods that hold it up."""
    one = found.present
    return {
        "reason": found.stage.value,
        "answer": checks_words(found),
        "check": None if one is None else one.check_name,
        "checks": [_attempt(row) for row in found.latest],
        "gang": None if found.gang is None else _gang(found.gang),
        "gangTimeoutAt": None if one is None else found.gives_up_at(one),
        "heldUpBy": [_peer(pod) for pod in found.held_up_by],
    }


def _attempt(row: PreflightAttempt) -> Document:
    return {
        "check": row.check_name,
        "attempt": row.attempt,
        "state": row.state,
        "outcome": row.outcome,
        "exitCode": row.exit_code,
        "reason": row.reason,
        "codes": row.codes.split(CODES_SEPARATOR) if row.codes else [],
        "message": row.message,
        "node": row.node,
        "started": row.started_at,
        "ended": row.ended_at,
    }


def _gang(row: PreflightGang) -> Document:
    return {
        "gang": row.gang,
        "state": row.state,
        "expected": row.expected,
        "found": row.found,
        "since": row.began_at,
        "timedOut": row.timed_out_at,
        "configMap": row.config_map,
        "reason": row.reason,
        "message": row.message,
    }


def _peer(pod: PodChecks) -> Document:
    one = pod.present
    return {"pod": pod.attempts[0].pod, "reason": pod.stage.value, "check": None if one is None else one.check_name}
