"""What the `statuswriter` service decides: what has to be done so that an object of the API server is as wanted.

Pure. Objects are compared by digests of the parts that the product keeps: the whole status, its own labels, and the
spec where the product gives one. Everything else of an object belongs to other people and is neither read nor
written. Of our objects only a ResourceSliceStatus has an owner, its ResourceSlice: with one, Kubernetes would delete
devices with their Node before the ledger says that they are gone. None has a finalizer of ours. Only what the ledger
knew and withdrew is deleted, or what is about a slice that was replaced, so that the wrong ledger, or an empty one,
deletes nothing.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.kube.names import (
    FIELD_MANAGER,
    GPU_DEVICES,
    GPU_NODE_STATES,
    LABEL_PRECISION_PREFIX,
    LABEL_PRODUCT,
    LABEL_VENDOR,
    MODULE_CONFIGS,
    NODE_FEATURE_RULES,
    PREREQUISITE_NOT_MET,
    RESOURCE_SLICE_STATUSES,
    RESOURCE_SLICES,
    Resource,
)

Document = dict[str, Any]

DIGEST_BYTES: Final = 12
HOUR_S: Final = 3600.0
OF_METADATA: Final = ("labels", "ownerReferences")
OUR_LABELS: Final = frozenset({LABEL_PRODUCT, LABEL_VENDOR})


class Kind(StrEnum):
    """The kinds that the product keeps; of a ModuleConfig only one condition."""

    DEVICE = "GPUDevice"
    NODE = "GPUNodeState"
    RULE = "NodeFeatureRule"
    MODULE = "ModuleConfig"
    SLICE = "ResourceSliceStatus"


RESOURCES: Final[Mapping[Kind, Resource]] = {
    Kind.DEVICE: GPU_DEVICES,
    Kind.NODE: GPU_NODE_STATES,
    Kind.RULE: NODE_FEATURE_RULES,
    Kind.MODULE: MODULE_CONFIGS,
    Kind.SLICE: RESOURCE_SLICE_STATUSES,
}


class Key(NamedTuple):
    """An object; all of them are cluster-scoped."""

    kind: Kind
    name: str


class Desired(NamedTuple):
    """How an object has to be. `main` is what is kept outside its status: `labels`, or `spec` and `ownerReferences`.

    `about` is the UID of what it describes, where it is to go with that; one about another is replaced.
    """

    main: Document
    status: Document
    about: str | None = None


class Actual(NamedTuple):
    """What is remembered of an object: who it is, and digests of what the product keeps.

    `changed_by` is the last field manager other than ours. `sent_main` and `sent_status` are
    digests of what was sent and is kept otherwise by the server: sending it again would change nothing. `about` is as
    in Desired.
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


class Action(StrEnum):
    """What is to be done next with an object."""

    NOTHING = "nothing"
    CREATE = "create"
    MAIN = "apply"
    STATUS = "apply status"
    DELETE = "delete"


def decide(kind: Kind, desired: Desired | None, *, withdrawn: bool, actual: Actual | None) -> Action:
    """The next step. `withdrawn` says that the ledger knew the object and took it back."""
    if desired is None:
        is_ours = withdrawn and actual is not None and not actual.deleting
        return Action.DELETE if is_ours else Action.NOTHING
    if actual is None:
        return Action.NOTHING if kind is Kind.MODULE else Action.CREATE
    return Action.NOTHING if actual.deleting else _decide_between(desired, actual)


def _decide_between(desired: Desired, actual: Actual) -> Action:
    if actual.about != desired.about:
        return Action.DELETE
    if _differs(desired.main, actual.main, actual.sent_main):
        return Action.MAIN
    if _differs(desired.status, actual.status, actual.sent_status):
        return Action.STATUS
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
    )


def main_of(kind: Kind, obj: Document) -> Document:
    """What the product keeps of an object outside its status."""
    if kind is Kind.DEVICE:
        labels = obj["metadata"].get("labels") or {}
        return {"labels": {key: value for key, value in labels.items() if is_our_label(key)}}
    if kind is Kind.SLICE:
        owners = obj["metadata"].get("ownerReferences") or ()
        ours = [one for one in owners if one.get("kind") == RESOURCE_SLICES.kind]
        return {"spec": obj.get("spec") or {}, "ownerReferences": ours}
    return {} if kind is Kind.MODULE else {"spec": obj.get("spec") or {}}


def status_of(kind: Kind, obj: Document) -> Document:
    """What the product keeps of an object's status: all of it, but of a ModuleConfig one condition."""
    status = obj.get("status") or {}
    if kind is Kind.RULE:
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
        return sorted(map(_canonical, value), key=_place)
    return value


def _place(value: object) -> str:
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
        if entry.get("manager") != FIELD_MANAGER
    ]
    return max(writes)[1] if writes else None


def body(key: Key, part: Document) -> Document:
    """An object to apply: `part` holds labels, spec and owners, or status."""
    metadata = {"name": key.name} | {name: part[name] for name in OF_METADATA if part.get(name)}
    return {"metadata": metadata} | {name: value for name, value in part.items() if name not in OF_METADATA}


def removals(wanted: Document, found: Document, pointer: str) -> list[Document]:
    """JSON Patch operations that remove what `found` has beyond `wanted`: applying leaves what others own."""
    return [{"op": "remove", "path": path} for path in _beyond(wanted, found, pointer)]


def _beyond(wanted: object, found: object, pointer: str) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in found.items():
            path = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            if key in wanted:
                yield from _beyond(wanted[key], value, path)
            else:
                yield path
    elif isinstance(wanted, list) and isinstance(found, list) and _is_told_apart(wanted) and _is_told_apart(found):
        named = {_place(one): one for one in wanted}
        for index in reversed(range(len(found))):
            path = f"{pointer}/{index}"
            if _place(found[index]) in named:
                yield from _beyond(named[_place(found[index])], found[index], path)
            else:
                yield path


def _is_told_apart(items: list[Any]) -> bool:
    """Whether the items are a set or have names; others are one value, which applying replaces as a whole."""
    places = {_place(one) for one in items}
    return len(places) == len(items) and "" not in places


class Undos:
    """How often changes by others were undone lately; times are seconds of any steady clock."""

    def __init__(self, per_hour_max: int) -> None:
        self._max = per_hour_max
        self._times: dict[Key, deque[float]] = {}

    def allowed_at(self, key: Key, now_s: float) -> float:
        """From when on a change of the object may be undone; not later than now where it may be at once."""
        times = self._times.get(key)
        return now_s if times is None or len(times) < self._max else times[0] + HOUR_S

    def note(self, key: Key, now_s: float) -> None:
        """A change is being undone."""
        for other in [other for other, times in self._times.items() if times[-1] + HOUR_S <= now_s]:
            del self._times[other]
        self._times.setdefault(key, deque(maxlen=self._max)).append(now_s)
