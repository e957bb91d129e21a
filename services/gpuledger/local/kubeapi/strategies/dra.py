"""Dynamic resource allocation, resource.k8s.io/v1: devices that drivers offer, and claims for them.

Nothing is allocated here: the scheduler writes allocations through `/status`, and this checks that they hold together.
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
    """What a driver offers, on one node or on several."""

    answers_deleted_object = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Note since when devices are tainted."""
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
        """A driver finds its slices by its name, a kubelet by its node's."""
        spec = obj.get("spec") or {}
        return {"spec.nodeName": spec.get("nodeName") or "", "spec.driver": spec.get("driver") or ""}


class DeviceClassStrategy(Strategy):
    """What an administrator offers of it."""

    answers_deleted_object = True

    def validate(self, obj: Object) -> list[Cause]:
        """Selectors compile."""
        return [*check.selectors(at(obj, "spec").get("selectors"), "spec.selectors")]


class ResourceClaimStrategy(Strategy):
    """What somebody wants of it, and got. Its spec never changes, nor does an allocation."""

    has_generation = False
    answers_deleted_object = True

    def default(self, obj: Object) -> None:
        """One device, unless something else is asked for."""
        fill_requests(at(obj, "spec", "devices"))
        if obj.get("status") is None:
            obj["status"] = {}

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Nothing is allocated yet."""
        obj["status"] = {}

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Keep what this endpoint does not write; forget the state of devices that are no longer allocated."""
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
        """The spec stays; a status has to fit it."""
        if subresource == "status":
            return list(status_causes(obj, old))
        return _unchanged_spec(obj, old)


class ResourceClaimTemplateStrategy(Strategy):
    """From which claims are made for pods."""

    has_generation = False
    answers_deleted_object = True

    def default(self, obj: Object) -> None:
        """As a claim."""
        fill_requests(at(obj, "spec", "spec", "devices"))

    def validate(self, obj: Object) -> list[Cause]:
        """As a claim."""
        return [*claim_causes(at(obj, "spec", "spec", "devices"), "spec.spec.devices")]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """The spec stays."""
        return _unchanged_spec(obj, old)


class DeviceTaintRuleStrategy(Strategy):
    """Taints that an administrator puts on devices, whatever their driver says."""

    answers_deleted_object = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Start without a status; note since when."""
        obj.pop("status", None)
        _date_taints([at(obj, "spec", "taint")], context.now)

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Keep what this endpoint does not write."""
        keep(obj, old, ("spec" if subresource == "status" else "status",))
        if subresource == "status":
            keep(obj["metadata"], old["metadata"], _OF_METADATA)
        _date_taints([at(obj, "spec", "taint")], context.now)

    def validate(self, obj: Object) -> list[Cause]:
        """What taint."""
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
