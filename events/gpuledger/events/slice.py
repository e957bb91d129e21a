"""ResourceSlices: what drivers offer for dynamic resource allocation. Quantities are in Kubernetes' canonical form."""

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt, StringConstraints

from gpuledger.events.payload import BIGINT_MAX, Count, Name, Payload, Text
from gpuledger.events.publishing import BY_WATCHERS
from gpuledger.events.reach import NodeReach
from gpuledger.events.registry import registry

DEVICES_PER_SLICE_MAX = 128
ATTRIBUTES_MAX = 64
COUNTER_SETS_MAX = 64
COUNTERS_MAX = 1024
TAINTS_MAX = 32
VALUES_MAX = 64

QUANTITY_LENGTH_MAX = 64
_QUANTITY = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,4})?$"

QuantityText = Annotated[str, StringConstraints(max_length=QUANTITY_LENGTH_MAX, pattern=_QUANTITY)]
Amounts = Annotated[dict[Name, QuantityText], Field(max_length=COUNTERS_MAX)]
CountersBySet = Annotated[dict[Name, Amounts], Field(max_length=COUNTER_SETS_MAX)]


class Version(Payload):
    """An attribute that is a semantic version."""

    version: Text


Attribute = StrictBool | Annotated[StrictInt, Field(ge=-BIGINT_MAX - 1, le=BIGINT_MAX)] | Version | Text


class Taint(Payload):
    """Why a device should not be used."""

    key: Name
    value: Text | None = None
    effect: Name


class RequestPolicy(Payload):
    """How much of a capacity a request consumes."""

    default: QuantityText | None = None
    values: Annotated[tuple[QuantityText, ...], Field(max_length=VALUES_MAX)] = ()
    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class DeviceCapacity(Payload):
    """One capacity of a device."""

    value: QuantityText
    policy: RequestPolicy | None = None


class SliceDevice(Payload):
    """A device; `shareable` if it allows several allocations, with a `reach` if that differs between devices."""

    name: Name
    shareable: bool = False
    attributes: Annotated[dict[Name, Attribute], Field(max_length=ATTRIBUTES_MAX)] = {}
    capacity: Annotated[dict[Name, DeviceCapacity], Field(max_length=ATTRIBUTES_MAX)] = {}
    consumes: CountersBySet = {}
    taints: Annotated[tuple[Taint, ...], Field(max_length=TAINTS_MAX)] = ()
    reach: NodeReach | None = None


class CounterSet(Payload):
    """Counters that devices of a pool share."""

    name: Name
    counters: Amounts = {}


@registry.event("slice", "published", BY_WATCHERS)
class SlicePublished(Payload):
    """A driver offers these devices. Replaces the previous content of the slice.

    `pool_generation` and `slice_count` describe the pool as this slice declares it, `generation` is the slice's own.
    Without a `reach` each device has its own.
    """

    uid: Name
    generation: Count = 0
    driver: Name
    pool: Name
    pool_generation: Count
    slice_count: Count
    reach: NodeReach | None = None
    devices: Annotated[tuple[SliceDevice, ...], Field(max_length=DEVICES_PER_SLICE_MAX)] = ()
    counter_sets: Annotated[tuple[CounterSet, ...], Field(max_length=COUNTER_SETS_MAX)] = ()


@registry.event("slice", "withdrawn", BY_WATCHERS)
class SliceWithdrawn(Payload):
    """The slice is gone, and its devices with it."""

    uid: Name | None = None


@registry.event("device-class", "defined", BY_WATCHERS)
class DeviceClassDefined(Payload):
    """A DeviceClass: CEL expressions that must all select a device."""

    uid: Name
    selectors: Annotated[tuple[Annotated[str, StringConstraints(max_length=10_240)], ...], Field(max_length=32)] = ()


@registry.event("device-class", "removed", BY_WATCHERS)
class DeviceClassRemoved(Payload):
    """The DeviceClass is gone."""

    uid: Name | None = None


@registry.event("taint-rule", "set", BY_WATCHERS)
class TaintRuleSet(Payload):
    """A DeviceTaintRule; a selector that is not set matches anything."""

    uid: Name
    taint: Taint
    driver: Name | None = None
    pool: Name | None = None
    device: Name | None = None


@registry.event("taint-rule", "lifted", BY_WATCHERS)
class TaintRuleLifted(Payload):
    """The DeviceTaintRule is gone."""

    uid: Name | None = None
