"""Counts logins of agents by outcome and reason. It decides nothing."""

from prometheus_client import Counter

from gpuledger.edge.authcallout.decide import FAILURES, Denied, Reason

GRANTED = ("granted", "")
_LOGINS = Counter(
    "gpuledger_callout_logins_total", "Logins that a NATS server asked about, by outcome.", ["outcome", "reason"]
)


def outcome_of(reason: Reason) -> tuple[str, str]:
    """The labels of a login that is not granted: `refused`, or `failed` where the fault may be ours."""
    return ("failed" if reason in FAILURES else "refused", str(reason))


for _labels in (GRANTED, *map(outcome_of, Reason)):
    _LOGINS.labels(*_labels)


def count(denied: Denied | None) -> None:
    """Count a login; None: it was granted."""
    _LOGINS.labels(*(GRANTED if denied is None else outcome_of(denied.reason))).inc()
