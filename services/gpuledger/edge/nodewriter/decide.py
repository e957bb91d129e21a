"""Decides whether an intent may still be carried out. Pure; history never acts."""

from datetime import datetime, timedelta
from typing import Final

from gpuledger.domain.quarantine.freshness import is_fresh
from gpuledger.edge.nodewriter.drain_intents import DrainIntent
from gpuledger.edge.nodewriter.intents import Intent
from gpuledger.events.maintenance import NodeDrainSuperseded, NodeIsolationSuperseded

CANCELLED: Final = "Cancelled before it was done: nobody asks for the drain any more."


def superseded(intent: Intent, *, is_newest: bool, now: datetime, max_age: timedelta) -> NodeIsolationSuperseded | None:
    """Why an intent is not carried out any more; None if it is to be.

    It must be the newest of its node, not imported, and fresh in both times: when it was decided, and recorded.
    """
    if intent.imported:
        return NodeIsolationSuperseded(intent=intent.intent, reason="Imported")
    if not is_newest:
        return NodeIsolationSuperseded(intent=intent.intent, reason="Newer")
    if not is_fresh(now, max_age, intent.time, intent.recorded_at):
        expired = _expired(now - min(intent.time, intent.recorded_at), max_age)
        message = f"{expired} such as with `gpuledger node cordon` or `gpuledger node uncordon`."
        return NodeIsolationSuperseded(intent=intent.intent, reason="Expired", message=message)
    return None


def drain_superseded(
    intent: DrainIntent, *, newest: str | None, now: datetime, max_age: timedelta
) -> NodeDrainSuperseded | None:
    """Why nothing is evicted for a drain any more; None if it goes on. What was last reported of it keeps it fresh.

    `newest` is the newest intent to drain the node; None: the last one was cancelled.
    """
    if intent.imported:
        return NodeDrainSuperseded(intent=intent.intent, reason="Imported")
    if newest != intent.intent:
        message = CANCELLED if newest is None else ""
        return NodeDrainSuperseded(intent=intent.intent, reason="Newer", message=message)
    if not is_fresh(now, max_age, intent.fresh_at):
        message = f"{_expired(now - intent.fresh_at, max_age)} such as with `gpuledger node drain`."
        return NodeDrainSuperseded(intent=intent.intent, reason="Expired", message=message)
    return None


def _expired(age: timedelta, max_age: timedelta) -> str:
    return f"It is {_seconds(age)} s old, and none is carried out after {_seconds(max_age)} s. Ask for it again,"


def _seconds(time: timedelta) -> int:
    return int(time.total_seconds())
