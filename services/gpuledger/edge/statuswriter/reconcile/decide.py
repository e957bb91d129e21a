"""Decides the next step for one object: what to do so that the API server shows its desired form.

Pure. Of our objects only a ResourceSliceStatus has an owner, its ResourceSlice: with one, Kubernetes would delete
devices with their Node before the ledger says that they are gone. Only people's pools have a finalizer of ours. The
product deletes only what the ledger recorded and withdrew, or what describes a slice that was replaced, so that the
wrong ledger, or an empty one, deletes nothing.
"""

from enum import StrEnum

from gpuledger.edge.statuswriter.fields import digest, for_object
from gpuledger.edge.statuswriter.objects import (
    POOL_KINDS,
    USER_KINDS,
    DesiredObject,
    Document,
    Kind,
    ObservedObject,
)


class Action(StrEnum):
    """The next step for an object."""

    NOTHING = "nothing"
    CREATE = "create"
    MAIN = "apply"
    STATUS = "apply status"
    APPROVE = "apply approval"
    DELETE = "delete"


def decide(kind: Kind, desired: DesiredObject | None, *, withdrawn: bool, observed: ObservedObject | None) -> Action:
    """The next step; `withdrawn` says that the ledger recorded the object and withdrew it."""
    if desired is None:
        is_ours = withdrawn and kind not in USER_KINDS and observed is not None and not observed.deleting
        return Action.DELETE if is_ours else Action.NOTHING
    if observed is None:
        return Action.NOTHING if kind in USER_KINDS else Action.CREATE
    if desired.uid not in (None, observed.uid):
        return Action.NOTHING
    if observed.deleting:
        return _decide_deleting(desired, observed) if kind in POOL_KINDS else Action.NOTHING
    return _decide_existing(desired, observed)


def _decide_deleting(desired: DesiredObject, observed: ObservedObject) -> Action:
    """A pool that is being deleted keeps its status until it goes; it can lose a finalizer, but not get one."""
    if not desired.main["finalizers"] and _differs(desired.main, observed.main, observed.sent_main):
        return Action.MAIN
    return Action.STATUS if _differs(desired.status, observed.status, observed.sent_status) else Action.NOTHING


def _decide_existing(desired: DesiredObject, observed: ObservedObject) -> Action:
    if observed.about != desired.about:
        return Action.DELETE
    if _differs(desired.main, observed.main, observed.sent_main):
        return Action.MAIN
    if _differs(desired.status, observed.status, observed.sent_status):
        return Action.STATUS
    approved = digest(desired.approved) if desired.approved else None
    if approved != observed.approved and (approved is None or approved != observed.sent_approved):
        return Action.APPROVE
    return Action.NOTHING


def _differs(document: Document, kept: bytes, sent: bytes | None) -> bool:
    return digest(document) not in (kept, sent)


def is_drift(kind: Kind, desired: DesiredObject | None, before: ObservedObject, after: ObservedObject | None) -> bool:
    """Whether somebody else changed an object that was as desired, while the desired form stayed the same."""
    if desired is None or before.deleting or (after is not None and after.deleting):
        return False
    desired_then, desired_now = for_object(kind, desired, before), for_object(kind, desired, after)
    if after is not None and desired_then != desired_now:
        return False
    was_right = decide(kind, desired_then, withdrawn=False, observed=before) is Action.NOTHING
    return was_right and decide(kind, desired_now, withdrawn=False, observed=after) is not Action.NOTHING
