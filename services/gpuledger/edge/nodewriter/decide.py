"""Decides whether an intent may still be carried out. Pure; history never acts."""

from datetime import datetime, timedelta

from gpuledger.edge.nodewriter.intents import Intent
from gpuledger.events.maintenance import NodeIsolationSuperseded


def superseded(intent: Intent, *, is_newest: bool, now: datetime, max_age: timedelta) -> NodeIsolationSuperseded | None:
    """Why an intent is not carried out any more; None if it is to be.

    It must be the newest of its node, not imported, and fresh in both times: when it was decided, and recorded.
    """
    if intent.imported:
        return NodeIsolationSuperseded(intent=intent.intent, reason="Imported")
    if not is_newest:
        return NodeIsolationSuperseded(intent=intent.intent, reason="Newer")
    age = now - min(intent.time, intent.recorded_at)
    if age > max_age:
        message = (
            f"It is {_seconds(age)} s old, and none is carried out after {_seconds(max_age)} s. Ask for it again, "
            "such as with `gpuledger node cordon` or `gpuledger node uncordon`."
        )
        return NodeIsolationSuperseded(intent=intent.intent, reason="Expired", message=message)
    return None


def _seconds(time: timedelta) -> int:
    return int(time.total_seconds())
