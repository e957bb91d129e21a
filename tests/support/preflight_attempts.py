"""Attempts of pods at preflight checks, and their gang, as rows."""

from typing import Any

from gpuledger.domain.preflight.results_gangs import gangs_of
from gpuledger.domain.preflight.results_rows import GangEvent, PreflightAttempt, PreflightGang, PreflightGangEvent
from gpuledger.events.position import ORIGIN
from support.events import hour

GANG = "ml/g"


def attempt(check: str = "dcgm-diag", number: int = 0, **other: Any) -> PreflightAttempt:
    """An attempt at a check of ml/w-0 on n1 that waits."""
    columns: dict[str, Any] = dict.fromkeys(PreflightAttempt._fields) | {
        "uid": "u1", "check_name": check, "attempt": 0, "number": number, "pod": "ml/w-0", "namespace": "ml",
        "node": "n1", "state": "waiting", "codes": "", "message": "", "first_at": hour(1), "observed_at": hour(1),
        "position": ORIGIN,
    }  # fmt: skip
    return PreflightAttempt(**columns | other)


def ended(
    outcome: str, exit_code: int | None, check: str = "dcgm-diag", number: int = 0, **other: Any
) -> PreflightAttempt:
    return attempt(check, number, state="ended", outcome=outcome, exit_code=exit_code, **other)


def allreduce(**other: Any) -> PreflightAttempt:
    """The check of the gang ml/g, which runs since one o'clock."""
    return attempt("nccl-allreduce", 1, **{"state": "running", "started_at": hour(1), "gang": GANG} | other)


def gang(found: int, expected: int | None = 3, *more: PreflightGangEvent, complete: bool = False) -> PreflightGang:
    first = PreflightGangEvent(GANG, hour(1), GangEvent.CONFIGURED.value, ORIGIN, "preflight-g", None, expected, found)
    return gangs_of([first._replace(complete=complete), *more])[-1]
