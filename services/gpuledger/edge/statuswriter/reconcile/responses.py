"""What an answer of the API server to a write says of the object. Pure."""

from collections.abc import Iterator
from typing import Any

from gpuledger.edge.kube.errors import ConflictError
from gpuledger.edge.statuswriter.cache.objects import Step
from gpuledger.edge.statuswriter.reconcile.decide import (
    Actual,
    Document,
    Key,
    Kind,
    actual_of,
    digest,
    is_our_label,
    place,
)

SOMEBODY = "somebody"


def extra_of(key: Key, part: Document, obj: Document) -> list[Document]:
    """What the object has beyond what was applied, where all of it is the product's, and no default of the server's."""
    if key.kind in (Kind.MODULE, Kind.COMPONENT) or "finalizers" in part:
        return []
    if "labels" in part:
        found = {name: value for name, value in (obj["metadata"].get("labels") or {}).items() if is_our_label(name)}
        return removals(part["labels"], found, "/metadata/labels")
    (name, wanted), *_ = part.items()
    return removals(wanted, obj.get(name) or {}, f"/{name}")


def answered(key: Key, step: Step, obj: Document, whole_status: bool | None) -> Actual:
    """What is known after an answer; where the server keeps what was sent otherwise, sending it again is no use."""
    assert step.desired is not None
    actual = actual_of(key.kind, obj)
    if step.actual is not None and step.actual.uid == actual.uid:
        actual = actual._replace(
            sent_main=step.actual.sent_main if step.actual.main == actual.main else None,
            sent_status=step.actual.sent_status if step.actual.status == actual.status else None,
        )
    if whole_status is True:
        sent = digest(step.desired.status)
        return actual._replace(sent_status=sent if sent != actual.status else None)
    if whole_status is False:
        sent = digest(step.desired.main)
        return actual._replace(sent_main=sent if sent != actual.main else None)
    return actual


def owners_of(error: ConflictError) -> str:
    """The managers that a conflict names: `conflict with "kubectl-edit" using ...`."""
    named = {cause.message.split('"')[1] for cause in error.causes if cause.message.count('"') >= 2}
    return ", ".join(sorted(named)) or SOMEBODY


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
        named = {place(one): one for one in wanted}
        for index in reversed(range(len(found))):
            path = f"{pointer}/{index}"
            if place(found[index]) in named:
                yield from _beyond(named[place(found[index])], found[index], path)
            else:
                yield path


def _is_told_apart(items: list[Any]) -> bool:
    """Whether the items are a set or have names; others are one value, which applying replaces as a whole."""
    places = {place(one) for one in items}
    return len(places) == len(items) and "" not in places
