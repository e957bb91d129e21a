"""Leases, with which controllers elect a leader and kubelets report that they are alive.

A lease is written by compare-and-swap only: an update without a resourceVersion is refused, because two candidates
could both believe that they lead.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.resources import Context, Strategy

_COORDINATED = ("strategy", "preferredHolder")


class LeaseStrategy(Strategy):
    """coordination.k8s.io leases."""

    creates_on_update = True
    updates_unconditionally = False
    has_generation = False

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Drop the fields of coordinated leader election, a feature that is off by default."""
        _drop_coordination(obj)

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """As on create."""
        _drop_coordination(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """Durations are positive, transitions are counted from 0."""
        return list(_causes(obj.get("spec") or {}))


def _causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    duration_s, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration_s is not None and duration_s <= 0:
        yield invalid("spec.leaseDurationSeconds", duration_s, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def _drop_coordination(obj: Object) -> None:
    for name in _COORDINATED:
        (obj.get("spec") or {}).pop(name, None)
