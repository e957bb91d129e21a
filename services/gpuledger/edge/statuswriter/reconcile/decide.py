"""What the `statuswriter` service decides: what has to be done so that an object of the API server is as wanted.

Pure. Objects are compared by digests of the parts that the product keeps: the whole status, its own labels, finalizer
and assignment annotations, and the spec where the product gives one. Everything else of an object belongs to other
people and is neither read nor written. Of our objects only a ResourceSliceStatus has an owner, its ResourceSlice: with
one, Kubernetes would delete devices with their Node before the ledger says that they are gone. Only people's pools have
a finalizer of ours. Only what the ledger knew and withdrew is deleted, or what is about a slice that was replaced, so
that the wrong ledger, or an empty one, deletes nothing.
"""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.conditions import PREREQUISITE_NOT_MET
from gpuledger.api.kinds import (
    ASSIGNMENT_FIELD_MANAGER,
    CLUSTER_GPU_POOLS,
    DAEMON_SETS,
    FIELD_MANAGER,
    GPU_DEVICES,
    GPU_NODE_STATES,
    GPU_POOLS,
    MODULE_CONFIGS,
    NODE_FEATURE_RULES,
    RESOURCE_SLICE_STATUSES,
    RESOURCE_SLICES,
    Resource,
)
from gpuledger.api.labels import LABEL_PRECISION_PREFIX, LABEL_PRODUCT, LABEL_VENDOR, POOL_FINALIZER

Document = dict[str, Any]

DIGEST_BYTES: Final = 12
OF_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")
OUR_LABELS: Final = frozenset({LABEL_PRODUCT, LABEL_VENDOR})
OUR_MANAGERS: Final = frozenset({FIELD_MANAGER, ASSIGNMENT_FIELD_MANAGER})


class Kind(StrEnum):
    """The kinds that the product keeps; of a ModuleConfig only one condition, of pools finalizer and status."""

    DEVICE = "GPUDevice"
    NODE = "GPUNodeState"
    RULE = "NodeFeatureRule"
    MODULE = "ModuleConfig"
    SLICE = "ResourceSliceStatus"
    POOL = "GPUPool"
    CLUSTER_POOL = "ClusterGPUPool"
    COMPONENT = "DaemonSet"


POOL_KINDS: Final = (Kind.POOL, Kind.CLUSTER_POOL)

OF_PEOPLE: Final = frozenset({Kind.MODULE, *POOL_KINDS})
"""Kinds whose objects people make and remove."""


RESOURCES: Final[Mapping[Kind, Resource]] = {
    Kind.DEVICE: GPU_DEVICES,
    Kind.NODE: GPU_NODE_STATES,
    Kind.RULE: NODE_FEATURE_RULES,
    Kind.MODULE: MODULE_CONFIGS,
    Kind.SLICE: RESOURCE_SLICE_STATUSES,
    Kind.POOL: GPU_POOLS,
    Kind.CLUSTER_POOL: CLUSTER_GPU_POOLS,
    Kind.COMPONENT: DAEMON_SETS,
}


class Key(NamedTuple):
    """An object; `namespace` is empty where its kind is cluster-scoped."""

    kind: Kind
    name: str
    namespace: str = ""

    @property
    def id(self) -> str:
        """Its name, after its namespace where it has one: `<namespace>/<name>`."""
        return object_id(self.name, self.namespace)


def object_id(name: str, namespace: str = "") -> str:
    """What tells an object from all others of its kind."""
    return f"{namespace}/{name}" if namespace else name


def key_of(kind: Kind, identity: str) -> Key:
    """The key of the object that has this id."""
    namespace, _, name = identity.rpartition("/")
    return Key(kind, name, namespace)


class Desired(NamedTuple):
    """How an object has to be. `main` is what is kept outside its status.

    That is `labels`, `finalizers`, or `spec` and `ownerReferences`. `about` is the UID of what it describes, where it
    is to go with that; one about another is replaced. `uid` is the one object that is meant, where another of its name
    is none of ours. `approved` is the assignment annotation that a pool gives a device by itself.
    """

    main: Document
    status: Document
    about: str | None = None
    uid: str | None = None
    approved: Document | None = None


class Actual(NamedTuple):
    """What is remembered of an object: who it is, and digests of what the product keeps.

    `changed_by` is the last field manager other than ours. `sent_main`, `sent_status` and `sent_approved` are digests
    of what was sent and is kept otherwise by the server: sending it again would change nothing. `about` is as in
    Desired, `approved` None where there is nothing of it.
    """

    uid: str
    version: str
    main: bytes
    status: bytes
    deleting: bool = False
    changed_by: str | None = None
    sent_main: bytes | None = None
    sent_status: bytes | None = None
    about: str | None = None
    approved: bytes | None = None
    sent_approved: bytes | None = None


class Action(StrEnum):
    """What is to be done next with an object."""

    NOTHING = "nothing"
    CREATE = "create"
    MAIN = "apply"
    STATUS = "apply status"
    APPROVE = "apply approval"
    DELETE = "delete"


def decide(kind: Kind, desired: Desired | None, *, withdrawn: bool, actual: Actual | None) -> Action:
    """The next step. `withdrawn` says that the ledger knew the object and took it back."""
    if desired is None:
        is_ours = withdrawn and kind not in OF_PEOPLE and actual is not None and not actual.deleting
        return Action.DELETE if is_ours else Action.NOTHING
    if actual is None:
        return Action.NOTHING if kind in OF_PEOPLE else Action.CREATE
    if desired.uid not in (None, actual.uid):
        return Action.NOTHING
    if actual.deleting:
        return _decide_leaving(desired, actual) if kind in POOL_KINDS else Action.NOTHING
    return _decide_between(desired, actual)


def _decide_leaving(desired: Desired, actual: Actual) -> Action:
    """A pool that is being deleted is shown until it goes; it can lose a finalizer, and get none."""
    if not desired.main["finalizers"] and _differs(desired.main, actual.main, actual.sent_main):
        return Action.MAIN
    return Action.STATUS if _differs(desired.status, actual.status, actual.sent_status) else Action.NOTHING


def _decide_between(desired: Desired, actual: Actual) -> Action:
    if actual.about != desired.about:
        return Action.DELETE
    if _differs(desired.main, actual.main, actual.sent_main):
        return Action.MAIN
    if _differs(desired.status, actual.status, actual.sent_status):
        return Action.STATUS
    approved = digest(desired.approved) if desired.approved else None
    if approved != actual.approved and (approved is None or approved != actual.sent_approved):
        return Action.APPROVE
    return Action.NOTHING


def _differs(document: Document, kept: bytes, sent: bytes | None) -> bool:
    return digest(document) not in (kept, sent)


def is_changed_by_others(kind: Kind, desired: Desired | None, before: Actual, after: Actual | None) -> bool:
    """Whether an object that was as wanted no longer is, though nothing else is wanted of it."""
    if desired is None or (after is not None and after.deleting):
        return False
    was_right = decide(kind, desired, withdrawn=False, actual=before) is Action.NOTHING and not before.deleting
    return was_right and decide(kind, desired, withdrawn=False, actual=after) is not Action.NOTHING


def digest(document: object) -> bytes:
    """The same for equal documents, whatever the order of keys, of conditions and of sets."""
    return blake2b(orjson.dumps(document, option=orjson.OPT_SORT_KEYS), digest_size=DIGEST_BYTES).digest()


def actual_of(kind: Kind, obj: Document) -> Actual:
    """What is remembered of an object."""
    metadata = obj["metadata"]
    return Actual(
        metadata["uid"],
        metadata["resourceVersion"],
        digest(main_of(kind, obj)),
        digest(status_of(kind, obj)),
        "deletionTimestamp" in metadata,
        _changed_by(metadata),
        about=(obj.get("spec") or {}).get("sliceUID") if kind is Kind.SLICE else None,
        approved=_approved(metadata) if kind is Kind.DEVICE else None,
    )


def _approved(metadata: Document) -> bytes | None:
    """The digest of the annotations that a pool gave by itself, as far as they are still its own."""
    owned: Document = {}
    for entry in metadata.get("managedFields") or ():
        if entry.get("manager") == ASSIGNMENT_FIELD_MANAGER:
            owned |= ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:annotations") or {}
    annotations = metadata.get("annotations") or {}
    kept = {key: value for key, value in annotations.items() if f"f:{key}" in owned}
    return digest(kept) if kept else None


def main_of(kind: Kind, obj: Document) -> Document:
    """What the product keeps of an object outside its status."""
    if kind is Kind.DEVICE:
        labels = obj["metadata"].get("labels") or {}
        return {"labels": {key: value for key, value in labels.items() if is_our_label(key)}}
    if kind in POOL_KINDS:
        return {"finalizers": [one for one in obj["metadata"].get("finalizers") or () if one == POOL_FINALIZER]}
    if kind is Kind.SLICE:
        owners = obj["metadata"].get("ownerReferences") or ()
        ours = [one for one in owners if one.get("kind") == RESOURCE_SLICES.kind]
        return {"spec": obj.get("spec") or {}, "ownerReferences": ours}
    if kind is Kind.COMPONENT:
        return {"labels": obj["metadata"].get("labels") or {}, "spec": obj.get("spec") or {}}
    return {} if kind is Kind.MODULE else {"spec": obj.get("spec") or {}}


def status_of(kind: Kind, obj: Document) -> Document:
    """What the product keeps of an object's status: all of it, but of a ModuleConfig one condition."""
    status = obj.get("status") or {}
    if kind in (Kind.RULE, Kind.COMPONENT):
        return {}
    if kind is Kind.MODULE:
        conditions = status.get("conditions") or ()
        return {"conditions": [one for one in conditions if one.get("type") == PREREQUISITE_NOT_MET]}
    return canonical(status)


def canonical(status: Document) -> Document:
    """A status with its conditions and sets in one order, because the order of neither means anything."""
    ordered: Document = _canonical(status)
    return ordered


def _canonical(value: Any) -> Any:  # noqa: ANN401 - JSON is any value
    if isinstance(value, dict):
        return {key: _canonical(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted(map(_canonical, value), key=place)
    return value


def place(value: object) -> str:
    """What tells an item of a list from the others: its type or name, or itself."""
    if isinstance(value, dict):
        return str(value.get("type") or value.get("name") or "")
    return str(value)


def is_our_label(key: str) -> bool:
    """Whether the product keeps this label of GPUDevices."""
    return key in OUR_LABELS or key.startswith(LABEL_PRECISION_PREFIX)


def _changed_by(metadata: Document) -> str | None:
    writes = [
        (entry.get("time") or "", str(entry.get("manager") or ""))
        for entry in metadata.get("managedFields") or ()
        if entry.get("manager") not in OUR_MANAGERS
    ]
    return max(writes)[1] if writes else None


def body(key: Key, part: Document, uid: str | None = None) -> Document:
    """An object to apply: `part` holds what is kept outside its status, or the status.

    With a UID only the object that has it is changed, and none is made.
    """
    who = {"name": key.name, "namespace": key.namespace, "uid": uid}
    metadata = {name: value for name, value in who.items() if value}
    metadata |= {name: part[name] for name in OF_METADATA if part.get(name)}
    return {"metadata": metadata} | {name: value for name, value in part.items() if name not in OF_METADATA}
