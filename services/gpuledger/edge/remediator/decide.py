"""Decides whether an object may still be created, and what the outcome of one is. Pure; history never acts."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from gpuledger.domain.quarantine.freshness import is_fresh
from gpuledger.domain.remediation.signs import message_of, shows
from gpuledger.edge.remediator.intents import RemedyIntent
from gpuledger.events.payload import truncated
from gpuledger.events.remediation import RemediationFinished, RemediationSuperseded

_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
_OF_KUBERNETES: Final = "node.kubernetes.io/"
"""How the keys of taints begin that Kubernetes itself puts on a Node, such as on one that does not answer."""

DELETED: Final = "Somebody deleted the object before it had an outcome."


def superseded(intent: RemedyIntent, *, now: datetime, max_age: timedelta) -> RemediationSuperseded | None:
    """Why an object is not created any more; None if it is to be. One that is there already is watched all the same."""
    if intent.imported:
        return RemediationSuperseded(intent=intent.intent, reason="Imported")
    if intent.is_cancelled:
        return RemediationSuperseded(intent=intent.intent, reason="Cancelled")
    if not is_fresh(now, max_age, intent.time, intent.recorded_at):
        message = (
            f"None is carried out that is older than {int(max_age.total_seconds())} s. The next report of the fault "
            "has it decided anew."
        )
        return RemediationSuperseded(intent=intent.intent, reason="Expired", message=message)
    return None


def keeps_pods_away(node: Mapping[str, Any]) -> bool:
    """Whether a Node is cordoned, or has taints that somebody has put on it."""
    spec = node.get("spec") or {}
    taints = (one for one in spec.get("taints") or () if one.get("effect") in _KEEPS_AWAY)
    return spec.get("unschedulable") is True or any(not one["key"].startswith(_OF_KUBERNETES) for one in taints)


def not_set_aside(intent: RemedyIntent) -> RemediationSuperseded:
    """Somebody gave the Node back behind the ledger, or the ledger has that and the decider has not come to it."""
    message = "The Node is neither cordoned nor tainted. The next report of the fault has it decided anew."
    return RemediationSuperseded(intent=intent.intent, reason="NotSetAside", message=message)


def outcome_of(intent: RemedyIntent, obj: Mapping[str, Any] | None, now: datetime) -> RemediationFinished | None:
    """The outcome of an object that was created, None while it has none; `obj` is None where it is gone."""
    data = intent.data
    assert intent.created_at is not None, "it was created"
    if obj is None:
        return RemediationFinished(intent=intent.intent, result="Failed", message=DELETED)
    if shows(obj, data.failed):
        message = truncated(message_of(obj, data.failed))
        return RemediationFinished(intent=intent.intent, result="Failed", message=message)
    if shows(obj, data.succeeded):
        message = truncated(message_of(obj, data.succeeded))
        return RemediationFinished(intent=intent.intent, result="Succeeded", message=message)
    if now - intent.created_at >= timedelta(seconds=data.timeout_s):
        message = f"It has had no outcome for {data.timeout_s} s."
        return RemediationFinished(intent=intent.intent, result="TimedOut", message=message)
    return None
