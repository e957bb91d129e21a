"""Reads objects of Kubernetes as the facts that a watcher would record of them now, without a ledger to record them in.

The watchers decide what of an object is relevant and how it becomes a fact; here they only get their times, which an
object tells of itself. Nothing here raises, whatever the object.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from gpuledger.domain.fact import Fact, Handlers
from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.objects import items, mapping, time_of
from gpuledger.edge.watchers.decide import AnyKind, ObjectPart, WatchedObjects
from gpuledger.events.envelope import Event
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN

UNDATED: Final = datetime.min.replace(tzinfo=UTC)
"""The time of an object that tells none."""

PROBLEMS_SHOWN_MAX: Final = 3
"""Objects that a note names which could not be fully understood."""


class DatedPart(NamedTuple):
    """The relevant content of an object, and when it got it."""

    part: ObjectPart
    time: datetime


def dated(kind: AnyKind, obj: Object, *written: str) -> DatedPart:
    """What a watcher of the kind reads of an object; `written` is the path whose last write dates it."""
    return DatedPart(kind.read(obj), written_at(obj, *written))


def written_at(obj: Object, *path: str) -> datetime:
    """When somebody last wrote what is at a path of the managed fields; else when the object was created.

    Whoever writes a field again with the same value, or another one beside it, makes this later.
    """
    metadata = mapping(obj, "metadata")
    writers = [one for one in items(metadata, "managedFields") if mapping(one, "fieldsV1", *path)] if path else []
    times = [found for one in writers if (found := time_of(mapping(one).get("time"))) is not None]
    return max(times, default=None) or time_of(metadata.get("creationTimestamp")) or UNDATED


def facts_of(kind: AnyKind, dated_parts: Iterable[DatedPart]) -> list[Fact]:
    """A fact for each subject that the objects are about."""
    parts = list(dated_parts)
    objects = WatchedObjects(kind, (one.part for one in parts))
    latest: dict[str, datetime] = {}
    for part, time in parts:
        if part.subject is not None:
            latest[part.subject] = max(time, latest.get(part.subject, UNDATED))
    return [
        fact_of(kind.source, subject, latest.get(subject, UNDATED), payload)
        for subject in sorted(objects.subjects())
        if (payload := objects.payload(subject)) is not None
    ]


def fact_of(source: str, subject: str, time: datetime, payload: Payload) -> Fact:
    """A fact that is in no log."""
    return Fact(Event("", source, payload.TYPE, subject, time, payload, "", 0), ORIGIN, 0)


def fold(state: Any, handlers: Handlers, facts: Iterable[Fact]) -> None:  # noqa: ANN401 - the handlers' own state
    """Fold facts into a state in the order of their times."""
    for fact in sorted(facts, key=lambda one: one.event.time):
        handlers[type(fact.event.data)](state, fact, fact.event.data)


def problem_notes(plural: str, parts: Iterable[ObjectPart]) -> Iterator[str]:
    """A note about objects that could not be fully understood."""
    found = [f"{one.key.removeprefix('/')}: {one.problems[0]}" for one in parts if one.problems]
    if found:
        shown = "; ".join(found[:PROBLEMS_SHOWN_MAX])
        more = f"; and {len(found) - PROBLEMS_SHOWN_MAX} more" if len(found) > PROBLEMS_SHOWN_MAX else ""
        yield f"Not all {plural} were fully understood ({shown}{more})."
