"""Leases: the objects with which controllers elect a leader and kubelets tell that they live.

A lease is written by compare-and-swap alone: an update that does not say which state it replaces is refused, or two
candidates could both believe that they lead.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.errors import ApiError, bad_request
from gpuledger.local.kubeapi.resources import Column, Context, Strategy

MICRO_TIME = "2006-01-02T15:04:05.000000Z07:00"
"""How Go writes the one form of a MicroTime that Kubernetes reads."""

_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_TIMES = ("acquireTime", "renewTime")
_COORDINATED = ("strategy", "preferredHolder")


class LeaseStrategy(Strategy):
    """coordination.k8s.io leases."""

    creates_on_update = True
    updates_unconditionally = False
    has_generation = False

    def decode(self, body: Object) -> None:
        """Read the times.

        Raises:
            ApiError: 400, one of them has not exactly six digits of fraction.
        """
        read_micro_times(body.get("spec"), _TIMES, "Lease", "v1")

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Drop what only coordinated leader election has, which is off unless asked for."""
        _drop_coordination(obj)

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """As on create."""
        _drop_coordination(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """Durations are positive, transitions are counted from 0."""
        return list(_causes(obj.get("spec") or {}))

    def columns(self) -> Sequence[Column]:
        """Who holds it."""
        return (Column("Name", format="name"), Column("Holder"), Column("Created At", "date"))

    def cells(self, obj: Object, now: datetime) -> list[object]:
        """One row."""
        metadata = obj["metadata"]
        holder = (obj.get("spec") or {}).get("holderIdentity") or ""
        return [metadata["name"], holder, metadata.get("creationTimestamp")]


def read_micro_times(holder: object, names: Sequence[str], kind: str, version: str) -> None:
    """Check MicroTime fields of an object and write them in UTC, in place. Other types than strings are left alone.

    Raises:
        ApiError: 400, one of them is no MicroTime.
    """
    if not isinstance(holder, dict):
        return
    for name in names:
        value = holder.get(name)
        if isinstance(value, str):
            holder[name] = _in_utc(value, kind, version)


def _in_utc(value: str, kind: str, version: str) -> str:
    try:
        if not _MICRO_TIME.fullmatch(value):
            raise _unreadable(value, kind, version)
        then = datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _unreadable(value, kind, version) from error
    return then.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _unreadable(value: str, kind: str, version: str) -> ApiError:
    seconds = _SECONDS.match(value)
    rest, expected = (value[seconds.end() :], ".000000") if seconds else (value, "2006")
    return bad_request(
        f'{kind} in version "{version}" cannot be handled as a {kind}: '
        f'parsing time "{value}" as "{MICRO_TIME}": cannot parse "{rest}" as "{expected}"'
    )


def _causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    duration_s, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration_s is not None and duration_s <= 0:
        yield invalid("spec.leaseDurationSeconds", duration_s, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def _drop_coordination(obj: Object) -> None:
    for name in _COORDINATED:
        (obj.get("spec") or {}).pop(name, None)
