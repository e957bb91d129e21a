"""What the `watchers` service decides: which facts are to be recorded, given what the ledger says and what there is.

Pure. An object is read into a `Part` that holds only what matters of it; the parts about one subject make up one
payload; a payload that differs from the last one recorded is a fact, and so is one that is no more. The time of a fact
is when it was observed, which is an argument: objects do not tell reliably when they changed. Nothing here may keep
more of an object than its kind says, and nothing that we wrote ourselves.
"""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.kinds import Resource
from gpuledger.events.payload import Payload
from gpuledger.events.subjects import ROOT, SERVICE, escape

Object = dict[str, Any]
"""A Kubernetes object, as JSON reads it."""

SERVICE_NAME: Final = "watchers"
DIGEST_BYTES: Final = 16
_NEXT: Final = timedelta(microseconds=1)


class Part(NamedTuple):
    """What one object says about a subject, as JSON.

    `key` tells the object from all others of its kind. Without a subject nothing that it says matters. `problems` are
    what could not be understood of it.
    """

    key: str
    subject: str | None
    said: bytes
    problems: tuple[str, ...] = ()


class Known(NamedTuple):
    """What the ledger last says about a subject, and the time of that; no digest says that it is gone."""

    digest: bytes | None
    uid: str | None
    time: datetime


class Fact(NamedTuple):
    """What is to be recorded about a subject."""

    subject: str
    time: datetime
    data: Payload


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object, and how its objects become facts.

    `read` must take any object whatsoever. `combine` makes the payload of a subject from its parts, ordered by their
    keys, and `farewell` what says that it is gone, given the uid that it had. `labels` selects the objects that are
    asked for, as kubectl takes it; without it all are. Of `always` there is a payload even without a part. `older` are
    versions of the resource with objects of the same shape, which servers may have that do not have its own, newest
    first.
    """

    name: str
    resource: Resource
    aggregate: str
    read: Callable[[Object], Part]
    combine: Callable[[list[bytes]], Payload | None]
    farewell: Callable[[str | None], Payload]
    only_named: str | None = None
    namespace: str | None = None
    labels: str = ""
    always: tuple[str, ...] = ()
    older: tuple[Resource, ...] = ()

    @property
    def source(self) -> str:
        """Who records the facts."""
        return f"/watchers/{self.name}"

    @property
    def subjects(self) -> str:
        """The filter for everything that watchers say of the aggregate."""
        return f"{ROOT}.{SERVICE}.{escape(SERVICE_NAME)}.{self.aggregate}.>"


class View:
    """What is seen of a kind's objects; only what matters of them is kept."""

    def __init__(self, kind: Kind, parts: Iterable[Part] = ()) -> None:
        self._kind = kind
        self._parts: dict[str, dict[str, bytes]] = {}
        self._subject_of: dict[str, str] = {}
        for part in parts:
            self.put(part)

    def subjects(self) -> set[str]:
        """Every subject that something is said about."""
        return {*self._parts, *self._kind.always}

    def payload(self, subject: str) -> Payload | None:
        """What is said about a subject by all objects together; None where nothing is."""
        parts = self._parts.get(subject, {})
        if not parts and subject not in self._kind.always:
            return None
        return self._kind.combine([parts[key] for key in sorted(parts)])

    def put(self, part: Part) -> tuple[str, ...]:
        """Take in what an object says now; returns the subjects that this touches."""
        before = self.drop(part.key) if self._subject_of.get(part.key) != part.subject else ()
        if part.subject is None:
            return before
        self._subject_of[part.key] = part.subject
        self._parts.setdefault(part.subject, {})[part.key] = part.said
        return (*before, part.subject)

    def drop(self, key: str) -> tuple[str, ...]:
        """Forget an object that was deleted; returns the subject that this touches."""
        subject = self._subject_of.pop(key, None)
        if subject is None:
            return ()
        parts = self._parts[subject]
        del parts[key]
        if not parts:
            del self._parts[subject]
        return (subject,)


def subjects_to_compare(known: Mapping[str, Known], view: View) -> list[str]:
    """Every subject that is there, or was by the ledger's word."""
    alive = {subject for subject, last in known.items() if last.digest is not None}
    return sorted(alive | view.subjects())


def differences(
    kind: Kind, known: Mapping[str, Known], view: View, subjects: Iterable[str], now: datetime
) -> list[Fact]:
    """What is to be recorded so that the ledger says of these subjects what is seen; the view must be complete."""
    return [
        fact
        for subject in subjects
        for fact in facts_about(kind, subject, known.get(subject), view.payload(subject), now)
    ]


def facts_about(kind: Kind, subject: str, known: Known | None, seen: Payload | None, now: datetime) -> list[Fact]:
    """What is to be recorded about one subject: nothing, one fact, or an end and a new beginning.

    No fact is earlier than the one before it about the same subject, whatever the clock says.
    """
    digest = None if seen is None else digest_of(seen)
    said = known or Known(None, None, now - _NEXT)
    if digest == said.digest:
        return []
    time = now if now > said.time else said.time + _NEXT
    if seen is None:
        return [Fact(subject, time, kind.farewell(said.uid))]
    if said.digest is not None and said.uid != uid_of(seen):
        return [Fact(subject, time, kind.farewell(said.uid)), Fact(subject, time + _NEXT, seen)]
    return [Fact(subject, time, seen)]


def note(kind: Kind, known: MutableMapping[str, Known], fact: Fact) -> None:
    """Take in that the ledger says this; what is earlier than the last about the same subject changes nothing."""
    last = known.get(fact.subject)
    if last is None or last.time <= fact.time:
        uid = uid_of(fact.data)
        ends = fact.subject not in kind.always and fact.data == kind.farewell(uid)
        known[fact.subject] = Known(None if ends else digest_of(fact.data), None if ends else uid, fact.time)


def digest_of(payload: Payload) -> bytes:
    """The same for equal payloads."""
    raw = orjson.dumps(payload.model_dump(mode="json", exclude_none=True), option=orjson.OPT_SORT_KEYS)
    return blake2b(raw, digest_size=DIGEST_BYTES).digest()


def uid_of(payload: Payload) -> str | None:
    """The uid of the object that a payload is about, where it has one."""
    uid: str | None = getattr(payload, "uid", None)
    return uid
