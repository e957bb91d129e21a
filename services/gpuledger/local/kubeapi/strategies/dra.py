"""Dynamic resource allocation (`resource.k8s.io`): slices, classes, claims, claim templates and device taint rules.

The server allocates nothing: a scheduler writes allocations through `/status`, and the strategies check that they are
consistent.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.resources import Context, Strategy, timestamp
from gpuledger.local.kubeapi.strategies import dra_checks as check
from gpuledger.local.kubeapi.strategies.core_shared import at, keep
from gpuledger.local.kubeapi.strategies.dra_claims import (
    allocated,
    claim_causes,
    device_id,
    fill_requests,
    status_causes,
)
from gpuledger.local.kubeapi.strategies.dra_slices import slice_causes

_OF_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")


class ResourceSliceStrategy(Strategy):
    """ResourceSlices: the devices that a driver offers."""

    answers_deleted_object = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Date the taints of devices."""
        _date_taints(_taints(obj), context.now)

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """As on create."""
        _date_taints(_taints(obj), context.now)

    def validate(self, obj: Object) -> list[Cause]:
        """Driver, pool, place and devices."""
        return list(slice_causes(obj.get("spec") or {}, None))

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """Driver, pool and node stay."""
        return list(slice_causes(obj.get("spec") or {}, old.get("spec") or {}))

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """Drivers select by driver, kubelets by node."""
        spec = obj.get("spec") or {}
        return {"spec.nodeName": spec.get("nodeName") or "", "spec.driver": spec.get("driver") or ""}


class DeviceClassStrategy(Strategy):
    """DeviceClasses."""

    answers_deleted_object = True

    def validate(self, obj: Object) -> list[Cause]:
        """Selectors compile."""
        return [*check.selectors(at(obj, "spec").get("selectors"), "spec.selectors")]


class ResourceClaimStrategy(Strategy):
    """ResourceClaims. Neither the spec nor an allocation ever changes."""

    has_generation = False
    answers_deleted_object = True

    def default(self, obj: Object) -> None:
        """Request one device by default."""
        fill_requests(at(obj, "spec", "devices"))
        if obj.get("status") is None:
            obj["status"] = {}

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Start without an allocation."""
        obj["status"] = {}

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Keep what this endpoint does not write; drop the state of devices that are no longer allocated."""
        if subresource != "status":
            keep(obj, old, ("status",))
            return
        keep(obj, old, ("spec",))
        keep(obj["metadata"], old["metadata"], _OF_METADATA)
        _forget_devices(obj, old)

    def validate(self, obj: Object) -> list[Cause]:
        """Requests, constraints and configurations."""
        return list(claim_causes(at(obj, "spec", "devices"), "spec.devices"))

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """The spec is fixed; a status must fit it."""
        if subresource == "status":
            return list(status_causes(obj, old))
        return _unchanged_spec(obj, old)


class ResourceClaimTemplateStrategy(Strategy):
    """ResourceClaimTemplates."""

    has_generation = False
    answers_deleted_object = True

    def default(self, obj: Object) -> None:
        """As a claim."""
        fill_requests(at(obj, "spec", "spec", "devices"))

    def validate(self, obj: Object) -> list[Cause]:
        """As a claim."""
        return [*claim_causes(at(obj, "spec", "spec", "devices"), "spec.spec.devices")]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """The spec is fixed."""
        return _unchanged_spec(obj, old)


class DeviceTaintRuleStrategy(Strategy):
    """DeviceTaintRules: taints that an administrator puts on devices."""

    answers_deleted_object = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Start without a status; date the taint."""
        obj.pop("status", None)
        _date_taints([at(obj, "spec", "taint")], context.now)

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Keep what this endpoint does not write."""
        keep(obj, old, ("spec" if subresource == "status" else "status",))
        if subresource == "status":
            keep(obj["metadata"], old["metadata"], _OF_METADATA)
        _date_taints([at(obj, "spec", "taint")], context.now)

    def validate(self, obj: Object) -> list[Cause]:
        """Check the taint."""
        return list(check.taint(at(obj, "spec", "taint"), "spec.taint"))


def _unchanged_spec(obj: Object, old: Object) -> list[Cause]:
    if obj.get("spec") == old.get("spec"):
        return []
    return [invalid("spec", obj.get("spec"), "field is immutable")]


def _taints(obj: Object) -> Iterator[Object]:
    for device in at(obj, "spec").get("devices") or ():
        yield from device.get("taints") or ()


def _date_taints(taints: Iterable[Object], now: datetime) -> None:
    for taint in taints:
        if taint and taint.get("timeAdded") is None:
            taint["timeAdded"] = timestamp(now)


def _forget_devices(obj: Object, old: Object) -> None:
    status = obj.get("status") or {}
    gone = allocated(at(old, "status").get("allocation")) - allocated(status.get("allocation"))
    devices = [device for device in status.get("devices") or () if device_id(device) not in gone]
    if devices:
        status["devices"] = devices
    else:
        status.pop("devices", None)
