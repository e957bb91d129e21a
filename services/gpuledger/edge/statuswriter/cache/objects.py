"""Everything the status writer remembers of each object: one state per key, kept in one map per kind.

Pure. A state holds what the API server shows, and how far reconciling the object has come: its lag, drift, failures and
throttling. Lists, watch events and answers to our own writes come in any order, so whatever is older than the cached
version is ignored: otherwise the echo of an earlier write would look like a change, and lead to the next write.
The map holds the objects that exist and those that still need work; `forget_idle` drops all others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from sys import intern
from typing import Final, NamedTuple

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.kube.reflector import Changed
from gpuledger.edge.statuswriter.fields import observe
from gpuledger.edge.statuswriter.objects import NAMES, Document, Key, Kind, ObservedObject, object_id

HOUR_S: Final = 3600.0


@dataclass(slots=True)
class Drift:
    """A change by somebody else. `is_correcting` once gpuledger may revert it, `is_left` while it stays as it is."""

    by: str
    is_correcting: bool = False
    is_left: bool = False


@dataclass(slots=True)
class ObjectState:
    """One object: what the API server shows of it, and how far reconciling it has come.

    `own_version` is the version of our last write until a watch event confirms it, `deleted_version` that of its
    deletion. `lag_since_ns` is when the ledger recorded the first fact that the object does not show yet, and
    `writing_since_ns` the same for the write under way; both are nanoseconds since 1970. `corrected_at_s` are the times
    of the last corrections of drift, `writable_at_s` is when the status may be written again; both are seconds of a
    steady clock. `is_paced` while a write waits for that time. `failures` counts attempts in a row that failed.
    """

    observed: ObservedObject | None = None
    own_version: str | None = None
    deleted_version: str | None = None
    lag_since_ns: int | None = None
    writing_since_ns: int | None = None
    drift: Drift | None = None
    corrected_at_s: tuple[float, ...] = ()
    writable_at_s: float = 0.0
    is_paced: bool = False
    failures: int = 0

    def is_idle(self, now_s: float) -> bool:
        """Whether nothing of the object is worth remembering."""
        is_shown = self.observed is not None or self.writing_since_ns is not None or self.lag_since_ns is not None
        is_throttled = self.writable_at_s > now_s or (self.corrected_at_s and self.corrected_at_s[-1] + HOUR_S > now_s)
        return not (is_shown or is_throttled or self.drift or self.failures or self.is_paced)

    def stop_work(self) -> None:
        """Forget the work on the object, but not what the API server shows of it."""
        self.lag_since_ns = self.drift = None
        self.is_paced, self.failures = False, 0

    def has_written_after(self, version: str) -> bool:
        """Whether the cached object is our own write, newer than a list of that version."""
        return self.observed is not None and self.own_version is not None and _is_older(version, self.own_version)

    def observe(self, seen: ObservedObject) -> None:
        """Cache the object as a list or an event shows it, and keep what is known of how the server stores writes."""
        before = self.observed
        if before is not None and not (before.sent_main is None and before.sent_status is None):
            seen = merged(seen, before)
        self.observed = seen


def merged(after: ObservedObject, before: ObservedObject) -> ObservedObject:
    """`after`, with the digests of what was sent as long as the server still stores it the same way."""
    return after._replace(
        sent_main=before.sent_main if before.main == after.main else None,
        sent_status=before.sent_status if before.status == after.status else None,
    )


class ListedObject(NamedTuple):
    """An object from a list or a watch; `id` is that of its key."""

    id: str
    observed: ObservedObject


def read(kind: Kind, obj: Document, names: SharingNames = NAMES) -> ListedObject:
    """What the cache keeps of an object; `names` are those of shared devices."""
    seen = observe(kind, obj, names)
    if seen.changed_by is not None:
        seen = seen._replace(changed_by=intern(seen.changed_by))
    metadata = obj["metadata"]
    return ListedObject(intern(object_id(metadata["name"], metadata.get("namespace") or "")), seen)


class ObservedChange(NamedTuple):
    """What a watch event changed: the cached object before and after it."""

    id: str
    before: ObservedObject | None
    after: ObservedObject | None


class KindCache:
    """The states of one kind's objects, by id."""

    def __init__(self) -> None:
        self.is_listed = False
        self.states: dict[str, ObjectState] = {}

    def state(self, identity: str) -> ObjectState:
        """The state of an object, which begins empty."""
        state = self.states.get(identity)
        if state is None:
            state = self.states[identity] = ObjectState()
        return state

    def observed(self, identity: str) -> ObservedObject | None:
        """The object as the API server shows it."""
        state = self.states.get(identity)
        return None if state is None else state.observed

    def listed(self, found: Iterable[ListedObject], version: str, now_s: float) -> None:
        """Everything that exists at a version; only our own later writes are newer."""
        newer = {identity for identity, state in self.states.items() if state.has_written_after(version)}
        present = set(newer)
        for one in found:
            present.add(one.id)
            if one.id not in newer:
                self.state(one.id).observe(one.observed)
        for identity in list(self.states):
            state = self.states[identity]
            state.deleted_version = None
            if identity not in present:
                state.observed = None
                self.forget_idle(identity, now_s)
        self.is_listed = True

    def interrupted(self) -> None:
        """The server that answers next may be another one, so earlier writes prove nothing."""
        for state in self.states.values():
            state.own_version = None

    def changed(self, change: Changed[ListedObject]) -> ObservedChange:
        """An object was created, changed or deleted."""
        identity, seen = change.object
        state = self.state(identity)
        before = state.observed
        if before is not None and _is_older(seen.version, before.version):
            return ObservedChange(identity, before, before)
        if state.own_version is not None and not _is_older(seen.version, state.own_version):
            state.own_version = None
        if change.type == "DELETED":
            state.deleted_version = seen.version
            state.observed = None
        else:
            state.observe(seen)
        return ObservedChange(identity, before, state.observed)

    def written(self, identity: str, seen: ObservedObject) -> None:
        """The server's answer to a write of ours."""
        state = self.state(identity)
        before = state.observed
        newest = (state.deleted_version or seen.version) if before is None else before.version
        if not _is_older(seen.version, newest):
            state.observed, state.own_version = seen, seen.version

    def gone(self, identity: str) -> None:
        """The server says that there is no such object."""
        state = self.state(identity)
        state.observed = state.own_version = None

    def forget_idle(self, identity: str, now_s: float) -> None:
        """Drop the state of an object that does not exist and needs no work; the one place where states end."""
        state = self.states.get(identity)
        if state is not None and state.is_idle(now_s):
            del self.states[identity]


class ObjectCache:
    """The states of all objects."""

    def __init__(self) -> None:
        self.kinds = {kind: KindCache() for kind in Kind}

    def state(self, key: Key) -> ObjectState:
        """The state of an object, which begins empty."""
        return self.kinds[key.kind].state(key.id)

    def states(self) -> Iterator[ObjectState]:
        """All of them."""
        for cache in self.kinds.values():
            yield from cache.states.values()


def _is_older(version: str, other: str) -> bool:
    """Whether a resource version is older than another; versions that are no numbers cannot be compared."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)
