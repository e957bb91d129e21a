"""Streams watch events: the changes after a revision, then changes as they happen.

A watcher reads the collection's own record of changes, so a slow watcher needs no queue. When it falls behind the
record it gets 410 Expired, as from a real server, and lists again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.options import ListOptions
from gpuledger.local.kubeapi.reading import ListSelection
from gpuledger.local.kubeapi.registry import Target
from gpuledger.local.kubeapi.store import ADDED, DELETED, MODIFIED, Change, Store, key_of

WATCH_S = 45 * 60
"""The duration of a watch without a timeout; real servers take 30 to 60 minutes."""

BOOKMARK_EVERY_S = 30.0

BOOKMARK, ERROR = "BOOKMARK", "ERROR"
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class WatchEvent(NamedTuple):
    """An event of a watch. A bookmark has only metadata; an error is a Status."""

    type: str
    object: Object


async def watch(
    store: Store,
    target: Target,
    options: ListOptions,
    chosen: ListSelection,
    revision: int,
    is_served: Callable[[], bool],
    *,
    bookmark_every_s: float = BOOKMARK_EVERY_S,
) -> AsyncIterator[list[WatchEvent]]:
    """Batches of events after a revision (0: first the present objects), until the end.

    A watch also ends when its resource is no longer served. An error of the watch itself is its last event. Closing
    the iterator ends the watch.
    """
    deadline = asyncio.get_running_loop().time() + (options.timeout_s or WATCH_S)
    try:
        initial, revision = _initial(store, target, options, chosen, revision)
        yield initial
        live = _live(store, target, revision, chosen, is_served, deadline, bookmark_every_s)
        async for events, revision in live:
            if events:
                yield events
            elif options.bookmarks:
                yield [_bookmark(revision)]
    except ApiError as error:
        yield [WatchEvent(ERROR, error.status())]


def _initial(
    store: Store, target: Target, options: ListOptions, chosen: ListSelection, revision: int
) -> tuple[list[WatchEvent], int]:
    collection = store.collection(target.resource.key)
    if options.initial_events or (options.initial_events is None and revision == 0):
        objects = collection.objects(chosen.namespace)
        events = [WatchEvent(ADDED, obj) for obj in objects if chosen.matches(obj)]
        if options.initial_events and options.bookmarks:
            events.append(_bookmark(store.revision, INITIAL_EVENTS_END))
        return events, store.revision
    if options.initial_events is False and revision == 0:
        return [], store.revision
    collection.since(revision)  # an expired one is told before anything else
    return [], revision


async def _live(
    store: Store,
    target: Target,
    revision: int,
    chosen: ListSelection,
    is_served: Callable[[], bool],
    deadline: float,
    bookmark_every_s: float,
) -> AsyncIterator[tuple[list[WatchEvent], int]]:
    clock = asyncio.get_running_loop().time
    collection = store.collection(target.resource.key)
    bookmark_at = clock() + bookmark_every_s
    while True:
        changed = collection.changed
        now = max(store.revision, revision)
        if changes := collection.since(revision):
            yield list(_seen(changes, chosen)), now
        revision = now
        if not is_served():
            return
        wait_s = min(deadline, bookmark_at) - clock()
        try:
            async with asyncio.timeout(max(wait_s, 0)):
                await changed.wait()
        except TimeoutError:
            yield [], revision
            if clock() >= deadline:
                return
            bookmark_at = clock() + bookmark_every_s


def _seen(changes: list[Change], chosen: ListSelection) -> Iterator[WatchEvent]:
    """The events for a selection, which objects may enter and leave."""
    for change in changes:
        if chosen.namespace is not None and key_of(change.object)[0] != chosen.namespace:
            continue
        was = change.before is not None and chosen.matches(change.before)
        if change.type == DELETED:
            if was:
                yield WatchEvent(DELETED, change.object)
        elif chosen.matches(change.object):
            yield WatchEvent(MODIFIED if was else ADDED, change.object)
        elif was:
            assert change.before is not None, "it was seen"
            metadata = {**change.before["metadata"], "resourceVersion": str(change.revision)}
            yield WatchEvent(DELETED, {**change.before, "metadata": metadata})


def _bookmark(revision: int, annotations: Object | None = None) -> WatchEvent:
    metadata: Object = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    return WatchEvent(BOOKMARK, {"metadata": metadata})
