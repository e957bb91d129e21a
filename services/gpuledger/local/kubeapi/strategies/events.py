"""Events in both forms: `v1`, which accepts nearly anything, and `events.k8s.io/v1`, which is strict.

Both are one stored object. Causes name the fields of the internal form, as those of a real server do.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid, required
from gpuledger.edge.kube.schema.object_names import dns_subdomain_problem, qualified_name_problem
from gpuledger.local.kubeapi.resources import Strategy
from gpuledger.local.kubeapi.strategies.core_shared import fill

SHORT_MAX = 128
"""Bytes of a reason, an action or a reporting instance."""

NOTE_MAX = 1024
"""Bytes of a note, which `v1` calls the message."""

SERIES_COUNT_MIN = 2
TYPES = ("Normal", "Warning")

_CORE_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_IMMUTABLE = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type"),
    *("eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)
_FREE_NAMESPACES = frozenset({"default", "kube-system"})


class CoreEventStrategy(Strategy):
    """`v1` events."""

    creates_on_update = True
    has_generation = False
    defaults: Mapping[str, Any] = {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }
    reference = "involvedObject"
    controller = "reportingComponent"
    aliases: Mapping[str, str] = {"reportingComponent": "reportingComponent", "source": "source"}

    def default(self, obj: Object) -> None:
        """Fill in the fields that are never absent."""
        fill(obj, {name: dict(value) if isinstance(value, dict) else value for name, value in self.defaults.items()})

    def validate(self, obj: Object) -> list[Cause]:
        """An event without eventTime must only be in its object's namespace."""
        return list(_basic_causes(_internal(obj), self.controller))

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """As on create: `v1` events may be changed at will."""
        return self.validate(obj)

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """The event's object, its reason and who reports it."""
        event = _internal(obj)
        reference = event.get("involvedObject") or {}
        reporter = event.get("reportingComponent") or ""
        labels = {f"{self.reference}.{name}": reference.get(name) or "" for name in _REFERENCE}
        reporters = {
            "reportingComponent": reporter,
            "source": (event.get("source") or {}).get("component") or reporter,
        }
        labels |= {name: reporters[meant] for name, meant in self.aliases.items()}
        return labels | {"reason": event.get("reason") or "", "type": event.get("type") or ""}


class EventStrategy(CoreEventStrategy):
    """`events.k8s.io/v1` events. Only their series may change."""

    defaults: Mapping[str, Any] = {
        "eventTime": None,
        "regarding": {},
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    }
    reference = "regarding"
    controller = "reportingController"
    aliases: Mapping[str, str] = {"reportingController": "reportingComponent"}

    def validate(self, obj: Object) -> list[Cause]:
        """The new fields are required, the deprecated ones refused."""
        event = _internal(obj)
        return [*_basic_causes(event, self.controller), *_series_causes(event), *_strict_causes(event)]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """Nothing but the series may change."""
        event, before = _internal(obj), _internal(old)
        series = [] if event.get("series") == before.get("series") else [*_series_causes(event)]
        return [*_basic_causes(event, self.controller), *series, *_changes(event, before)]


def _internal(obj: Object) -> Object:
    return {_CORE_NAMES.get(name, name): value for name, value in obj.items()}


def _basic_causes(event: Object, controller: str) -> Iterator[Cause]:
    namespace = event.get("metadata", {}).get("namespace") or ""
    about = (event.get("involvedObject") or {}).get("namespace") or ""
    is_new = bool(event.get("eventTime"))
    fits = (about or namespace in _FREE_NAMESPACES) if is_new else namespace in {about, about or "default"}
    if not fits:
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")
    if is_new:
        yield from _new_style_causes(event, controller)
    if problem := dns_subdomain_problem(namespace):
        yield invalid("namespace", namespace, problem)


def _new_style_causes(event: Object, controller: str) -> Iterator[Cause]:
    reporter = event.get("reportingComponent") or ""
    if not reporter:
        yield required(controller)
    if problem := qualified_name_problem(reporter):
        yield invalid(controller, reporter, problem)
    for name in ("reportingInstance", "action", "reason"):
        if not event.get(name):
            yield required(name)
    for name, limit in (("reportingInstance", SHORT_MAX), ("action", SHORT_MAX), ("reason", SHORT_MAX)):
        yield from _too_long(event, name, limit)
    yield from _too_long(event, "message", NOTE_MAX)


def _too_long(event: Object, name: str, limit: int) -> Iterator[Cause]:
    if len(str(event.get(name) or "").encode()) > limit:
        yield invalid(name, "", f"can have at most {limit} characters")


def _series_causes(event: Object) -> Iterator[Cause]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < SERIES_COUNT_MIN:
        yield invalid("series.count", "", f"should be at least {SERIES_COUNT_MIN}")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def _strict_causes(event: Object) -> Iterator[Cause]:
    kind = event.get("type") or ""
    if not event.get("eventTime"):
        yield required("eventTime")
    if kind not in TYPES:
        yield invalid("type", "", f"has invalid value: {kind}")
    for name in ("firstTimestamp", "lastTimestamp", "count"):
        if event.get(name):
            yield invalid(name, "", "needs to be unset")
    if any((event.get("source") or {}).get(name) for name in ("component", "host")):
        yield invalid("source", "", "needs to be unset")


def _changes(event: Object, before: Object) -> Iterator[Cause]:
    for name in _IMMUTABLE:
        if (event.get(name) or None) != (before.get(name) or None):
            field = "reportingController" if name == "reportingComponent" else name
            yield invalid(field, event.get(name), "field is immutable")
