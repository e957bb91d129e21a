"""Dynamic resource allocation, resource.k8s.io/v1: devices that drivers offer, and claims for them.

Nothing is allocated here: the scheduler writes allocations through `/status`, and this checks that they hold together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.errors import bad_request
from gpuledger.local.kubeapi.metadata import validate_labels
from gpuledger.local.kubeapi.resources import Column, Context, Strategy
from gpuledger.local.kubeapi.strategies import dra_checks as check
from gpuledger.local.kubeapi.strategies.core_quantities import canonical
from gpuledger.local.kubeapi.strategies.core_shared import at, keep, timestamp
from gpuledger.local.kubeapi.strategies.dra_claims import (
    CONFIGS_MAX,
    allocated,
    claim_causes,
    device_id,
    fill_requests,
    status_causes,
)
from gpuledger.local.kubeapi.strategies.dra_slices import rule_causes, slice_causes

_OF_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
_CONDITIONS_MAX = 8


class ResourceSliceStrategy(Strategy):
    """What a driver offers, on one node or on several."""

    answers_deleted_object = True

    def decode(self, body: Object) -> None:
        """Read the quantities.

        Raises:
            ApiError: 400, one of them is none.
        """
        for holder, name in _quantities(body):
            _canonical(holder, name, "ResourceSlice")

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

    def field_names(self) -> frozenset[str]:
        """Both."""
        return frozenset(self.field_labels({}))

    def columns(self) -> Sequence[Column]:
        """Where the devices are and whose they are."""
        names = ("Node", "Driver", "Pool")
        return (Column("Name", format="name"), *map(Column, names), Column("Created At", "date"))

    def cells(self, obj: Object, now: datetime) -> list[object]:
        """One row."""
        spec, metadata = at(obj, "spec"), obj["metadata"]
        node, pool = spec.get("nodeName") or "", at(spec, "pool").get("name") or ""
        return [metadata["name"], node, spec.get("driver") or "", pool, metadata.get("creationTimestamp")]


class DeviceClassStrategy(Strategy):
    """What an administrator offers of it."""

    answers_deleted_object = True

    def validate(self, obj: Object) -> list[Cause]:
        """Selectors and configurations."""
        spec = obj.get("spec") or {}
        return [
            *check.selectors(spec.get("selectors"), "spec.selectors"),
            *check.items(spec.get("config"), CONFIGS_MAX, "spec.config", check.configuration),
            *_extended_name_causes(spec.get("extendedResourceName")),
        ]


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

    def columns(self) -> Sequence[Column]:
        """What has become of it."""
        return (Column("Name", format="name"), Column("State"), Column("Created At", "date"))

    def cells(self, obj: Object, now: datetime) -> list[object]:
        """One row."""
        metadata = obj["metadata"]
        return [metadata["name"], _state(obj), metadata.get("creationTimestamp")]


class ResourceClaimTemplateStrategy(Strategy):
    """From which claims are made for pods."""

    has_generation = False
    answers_deleted_object = True

    def default(self, obj: Object) -> None:
        """As a claim."""
        fill_requests(at(obj, "spec", "spec", "devices"))

    def validate(self, obj: Object) -> list[Cause]:
        """As a claim, and the metadata of claims."""
        metadata = at(obj, "spec", "metadata")
        return [
            *validate_labels(metadata.get("labels"), "spec.metadata.labels"),
            *claim_causes(at(obj, "spec", "spec", "devices"), "spec.spec.devices"),
        ]

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
        """Which devices, and what taint."""
        return list(rule_causes(at(obj, "spec")))

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """As on create; of a status its conditions."""
        if subresource != "status":
            return self.validate(obj)
        return list(check.conditions(at(obj, "status").get("conditions"), _CONDITIONS_MAX, "status.conditions"))


def _unchanged_spec(obj: Object, old: Object) -> list[Cause]:
    if obj.get("spec") == old.get("spec"):
        return []
    return [invalid("spec", obj.get("spec"), "field is immutable")]


def _extended_name_causes(name: str | None) -> Iterator[Cause]:
    if name is None:
        return
    domain, slash, _ = name.partition("/")
    is_native = not slash or domain.endswith("kubernetes.io") or name.startswith("requests.")
    if is_native or list(check.label_key(f"requests.{name}", "")):
        yield invalid("spec.extendedResourceName", name, "must be a valid extended resource name")


def _quantities(body: Object) -> Iterator[tuple[Object, str]]:
    spec = body.get("spec")
    if not isinstance(spec, dict):
        return
    for device in _maps(spec.get("devices")):
        yield from ((value, "value") for value in _values(device.get("capacity")))
        for consumption in _maps(device.get("consumesCounters")):
            yield from ((value, "value") for value in _values(consumption.get("counters")))
    for counters in _maps(spec.get("sharedCounters")):
        yield from ((value, "value") for value in _values(counters.get("counters")))


def _maps(values: object) -> list[Object]:
    return [one for one in values if isinstance(one, dict)] if isinstance(values, list) else []


def _values(mapping: object) -> list[Object]:
    return _maps(list(mapping.values())) if isinstance(mapping, dict) else []


def _canonical(holder: Object, name: str, kind: str) -> None:
    try:
        holder[name] = canonical(holder.get(name))
    except ValueError as error:
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error


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


def _state(obj: Object) -> str:
    status, states = at(obj, "status"), []
    if obj["metadata"].get("deletionTimestamp"):
        states.append("deleted")
    if status.get("allocation") is None:
        return "deleted" if states else "pending"
    states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    return ",".join(states)
