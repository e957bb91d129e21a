"""Converts Events between `v1` and `events.k8s.io/v1`, which are two forms of one stored object.

The store keeps the core form. A conversion loses nothing and copies only the top level.
"""

from gpuledger.edge.kube.schema.causes import Object

CORE = "v1"
EVENTS = "events.k8s.io/v1"

_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_BACK = {new: old for old, new in _RENAMED.items()}


def events_v1(obj: Object) -> Object:
    """An event of the core group in the form of `events.k8s.io/v1`."""
    return _renamed(obj, _RENAMED, EVENTS)


def core_event(obj: Object) -> Object:
    """An event of `events.k8s.io/v1` in the form of the core group."""
    return _renamed(obj, _BACK, CORE)


def _renamed(obj: Object, names: dict[str, str], api_version: str) -> Object:
    return {names.get(name, name): value for name, value in obj.items()} | {"apiVersion": api_version}
