"""Reads the API server's answer to a write, and says which object a write is about. Pure.

An answer gives what the cache keeps of the object, and which foreign fields it shows.
"""

from collections.abc import Iterator
from typing import Any, Final

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.kube.errors import ConflictError
from gpuledger.edge.statuswriter.cache.objects import merged
from gpuledger.edge.statuswriter.fields import (
    config_annotations,
    digest,
    item_name,
    observe,
    our_labels,
    status_of,
)
from gpuledger.edge.statuswriter.node_resources import PLACES
from gpuledger.edge.statuswriter.objects import NAMES, Document, Key, Kind, ObservedObject
from gpuledger.edge.statuswriter.reconcile.planner import PlannedStep

SOMEBODY: Final = "somebody"


def extra_of(key: Key, part: Document, obj: Document, names: SharingNames = NAMES) -> list[Document]:
    """What the object has beyond what was applied, where the product owns all of it and the server sets no defaults."""
    if key.kind in (Kind.MODULE, Kind.COMPONENT, Kind.RENDERED_CONFIG) or "finalizers" in part:
        return []
    if "labels" in part:
        labels = removals(part["labels"], our_labels(key.kind, obj, names), "/metadata/labels")
        if key.kind is not Kind.KUBE_NODE:
            return labels
        annotations = config_annotations(obj["metadata"])
        return labels + removals(part["annotations"], annotations, "/metadata/annotations")
    if key.kind is Kind.KUBE_NODE:
        return removals(_with_places(part["status"]), status_of(key.kind, obj, names), "/status")
    (name, applied), *_ = part.items()
    return removals(applied, obj.get(name) or {}, f"/{name}")


def _with_places(status: Document) -> Document:
    return {place: status.get(place) or {} for place in PLACES}


def uid_of(key: Key, step: PlannedStep) -> str | None:
    """The UID of the one object that a write may change: a write must never create a Node that is just gone."""
    if key.kind is Kind.KUBE_NODE and step.observed is not None:
        return step.observed.uid
    return None if step.desired is None else step.desired.uid


def observed_after(
    key: Key, step: PlannedStep, obj: Document, whole_status: bool | None, names: SharingNames = NAMES
) -> ObservedObject:
    """The object after a write; where the server stores what was sent differently, sending it again is no use.

    `whole_status` says which part was sent whole: the status, the part outside it, or neither.
    """
    assert step.desired is not None
    seen = observe(key.kind, obj, names)
    if step.observed is not None and step.observed.uid == seen.uid:
        seen = merged(seen, step.observed)
    if whole_status is True:
        sent = digest(step.desired.status)
        return seen._replace(sent_status=sent if sent != seen.status else None)
    if whole_status is False:
        sent = digest(step.desired.main)
        return seen._replace(sent_main=sent if sent != seen.main else None)
    return seen


def owners_of(error: ConflictError) -> str:
    """The managers that a conflict names: `conflict with "kubectl-edit" using ...`."""
    named = {cause.message.split('"')[1] for cause in error.causes if cause.message.count('"') >= 2}
    return ", ".join(sorted(named)) or SOMEBODY


def removals(desired: Document, found: Document, pointer: str) -> list[Document]:
    """JSON Patch operations that remove what `found` has beyond `desired`: an apply leaves what others own."""
    return [{"op": "remove", "path": path} for path in _beyond(desired, found, pointer)]


def _beyond(desired: object, found: object, pointer: str) -> Iterator[str]:
    if isinstance(desired, dict) and isinstance(found, dict):
        for key, value in found.items():
            path = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            if key in desired:
                yield from _beyond(desired[key], value, path)
            else:
                yield path
    elif isinstance(desired, list) and isinstance(found, list) and _are_named(desired) and _are_named(found):
        named = {item_name(one): one for one in desired}
        for index in reversed(range(len(found))):
            path = f"{pointer}/{index}"
            if item_name(found[index]) in named:
                yield from _beyond(named[item_name(found[index])], found[index], path)
            else:
                yield path


def _are_named(items: list[Any]) -> bool:
    """Whether the items are a set or have names; an apply replaces any other list as a whole."""
    names = {item_name(one) for one in items}
    return len(names) == len(items) and "" not in names
