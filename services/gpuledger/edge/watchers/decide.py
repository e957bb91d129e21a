"""Decides which facts the watchers record, given what the ledger says and which objects exist.

Pure. An object is read into an `ObjectPart` that holds only its relevant content; the parts about one subject make one
payload. A payload that differs from the last one recorded is a new fact, and so is the tombstone of a subject without
parts. The time of a fact is when it was observed, which is an argument: objects do not say reliably when they changed.
Nothing here may keep more of an object than its kind declares, and nothing that gpuledger wrote itself.
"""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final, Generic, NamedTuple, TypeVar

import orjson

from gpuledger.api.kinds import Resource
from gpuledger.events.payload import Payload
from gpuledger.events.subjects import ROOT, SERVICE, escape

Object = dict[str, Any]
"""A Kubernetes object, as JSON reads it."""

P_co = TypeVar("P_co", bound=Payload, covariant=True)

SERVICE_NAME: Final = "watchers"
DIGEST_BYTES: Final = 16
_NEXT: Final = timedelta(microseconds=1)


class ObjectPart(NamedTuple):
    """The content of one object that is relevant to a subject, as JSON.

    `key` identifies the object among those of its kind. Without a subject the object is irrelevant. `problems` are the
    fields that could not be understood.
    """

    key: str
    subject: str | None
    content: bytes
    problems: tuple[str, ...] = ()


class LastRecord(NamedTuple):
    """The ledger's last record of a subject, and its time; without a digest it is a tombstone."""

    digest: bytes | None
    uid: str | None
    time: datetime


class NewFact(NamedTuple):
    """A fact to record about a subject."""

    subject: str
    time: datetime
    data: Payload


@dataclass(frozen=True, slots=True)
class WatchedKind(Generic[P_co]):
    """A kind of object, and how its objects become facts.

    `read` must take any object whatsoever. A subject has one part, which is its `payload`, unless `merge` makes the
    payload from all parts, ordered by their keys. `tombstone` is recorded once no part is left. `labels` selects the
    objects, as kubectl takes it; `only_named` and `namespace` limit them. The subjects in `always` have a payload even
    without a part. `older` are versions of the resource with objects of the same shape, newest first, for servers that
    do not serve the resource's own version.
    """

    name: str
    resource: Resource
    payload: type[P_co]
    tombstone: type[Payload]
    read: Callable[[Object], ObjectPart]
    merge: Callable[[list[bytes]], P_co] | None = None
    only_named: str | None = None
    namespace: str | None = None
    labels: str = ""
    always: tuple[str, ...] = ()
    older: tuple[Resource, ...] = ()

    @property
    def source(self) -> str:
        """The source of the facts."""
        return f"/watchers/{self.name}"

    @property
    def subjects(self) -> str:
        """The filter for everything that watchers record of the aggregate."""
        return f"{ROOT}.{SERVICE}.{escape(SERVICE_NAME)}.{self.payload.AGGREGATE}.>"

    def combine(self, parts: list[bytes]) -> P_co:
        """The payload of a subject."""
        return self.merge(parts) if self.merge else self.payload.model_validate(orjson.loads(parts[0]))

    def tombstone_of(self, uid: str | None) -> Payload:
        """The fact that nothing is left of a subject; `uid` is that of its last object."""
        return self.tombstone.model_validate({"uid": uid} if "uid" in self.tombstone.model_fields else {})


AnyKind = WatchedKind[Payload]


class WatchedObjects:
    """The present objects of a kind; only their relevant content is kept."""

    def __init__(self, kind: AnyKind, parts: Iterable[ObjectPart] = ()) -> None:
        self._kind = kind
        self._parts: dict[str, dict[str, bytes]] = {}
        self._subject_of: dict[str, str] = {}
        for part in parts:
            self.put(part)

    def subjects(self) -> set[str]:
        """Every subject that has a payload."""
        return {*self._parts, *self._kind.always}

    def payload(self, subject: str) -> Payload | None:
        """The payload of a subject from all its objects; None where it has none."""
        parts = self._parts.get(subject, {})
        if not parts and subject not in self._kind.always:
            return None
        return self._kind.combine([parts[key] for key in sorted(parts)])

    def put(self, part: ObjectPart) -> tuple[str, ...]:
        """Add or replace an object; returns the subjects that this changes."""
        before = self.drop(part.key) if self._subject_of.get(part.key) != part.subject else ()
        if part.subject is None:
            return before
        self._subject_of[part.key] = part.subject
        self._parts.setdefault(part.subject, {})[part.key] = part.content
        return (*before, part.subject)

    def drop(self, key: str) -> tuple[str, ...]:
        """Forget an object that was deleted; returns the subject that this changes."""
        subject = self._subject_of.pop(key, None)
        if subject is None:
            return ()
        parts = self._parts[subject]
        del parts[key]
        if not parts:
            del self._parts[subject]
        return (subject,)


def subjects_to_compare(recorded: Mapping[str, LastRecord], objects: WatchedObjects) -> list[str]:
    """Every subject that exists, now or in the ledger."""
    alive = {subject for subject, last in recorded.items() if last.digest is not None}
    return sorted(alive | objects.subjects())


def differences(
    kind: AnyKind,
    recorded: Mapping[str, LastRecord],
    objects: WatchedObjects,
    subjects: Iterable[str],
    now: datetime,
) -> list[NewFact]:
    """The facts that make the ledger equal to the objects, which must be complete, for these subjects."""
    return [
        fact
        for subject in subjects
        for fact in facts_about(kind, subject, recorded.get(subject), objects.payload(subject), now)
    ]


def facts_about(
    kind: AnyKind, subject: str, recorded: LastRecord | None, present: Payload | None, now: datetime
) -> list[NewFact]:
    """The facts to record about one subject: none, one, or a tombstone and a new beginning.

    No fact is earlier than the one before it about the same subject, whatever the clock says.
    """
    digest = None if present is None else digest_of(present)
    last = recorded or LastRecord(None, None, now - _NEXT)
    if digest == last.digest:
        return []
    time = now if now > last.time else last.time + _NEXT
    if present is None:
        return [NewFact(subject, time, kind.tombstone_of(last.uid))]
    if last.digest is not None and last.uid != uid_of(present):
        return [NewFact(subject, time, kind.tombstone_of(last.uid)), NewFact(subject, time + _NEXT, present)]
    return [NewFact(subject, time, present)]


def note(kind: AnyKind, recorded: MutableMapping[str, LastRecord], fact: NewFact) -> None:
    """Note that the ledger has a fact; one that is earlier than the last about its subject changes nothing."""
    last = recorded.get(fact.subject)
    if last is None or last.time <= fact.time:
        uid = uid_of(fact.data)
        ends = fact.subject not in kind.always and fact.data == kind.tombstone_of(uid)
        recorded[fact.subject] = LastRecord(None if ends else digest_of(fact.data), None if ends else uid, fact.time)


def digest_of(payload: Payload) -> bytes:
    """The same for equal payloads."""
    raw = orjson.dumps(payload.model_dump(mode="json", exclude_none=True), option=orjson.OPT_SORT_KEYS)
    return blake2b(raw, digest_size=DIGEST_BYTES).digest()


def uid_of(payload: Payload) -> str | None:
    """The uid of the object that a payload is about, where it has one."""
    uid: str | None = getattr(payload, "uid", None)
    return uid
