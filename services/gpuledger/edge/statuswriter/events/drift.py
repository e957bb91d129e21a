"""What people are told of changes by others that the status writer undid, or leaves as they are. Pure."""

from datetime import datetime

from gpuledger.api.reasons import EventReason
from gpuledger.edge.statuswriter.desired.objects import News
from gpuledger.edge.statuswriter.reconcile.decide import Key


def restored(key: Key, by: str, now: datetime) -> News:
    """An object is as it has to be again."""
    note = f"{key.kind} {key.id} was changed by {by}; it is as the ledger says again."
    return _warning(key, EventReason.STATUS_RESTORED, note, now)


def left(key: Key, by: str, undos_per_hour_max: int, now: datetime) -> News:
    """Somebody keeps changing an object, and gets their way for a while."""
    note = (
        f"StatusConflict: {by} keeps changing {key.kind} {key.id}; after {undos_per_hour_max} corrections within "
        "an hour it is left as it is for a while. Have it stop writing what gpuledger owns."
    )
    return _warning(key, EventReason.FIELD_CONFLICT, note, now)


def _warning(key: Key, reason: EventReason, note: str, now: datetime) -> News:
    return News(key, reason, "", note, True, now, int(now.timestamp() * 1e9))
