"""Pools: GPUPool and ClusterGPUPool, groups of devices that pods request by one resource name.

A pool's id is `<namespace>/<name>` for a GPUPool and `<name>` for a ClusterGPUPool.
"""

from typing import Annotated, Literal

from pydantic import Field

from gpuledger.events.node import CONDITIONS_MAX, Condition, Labels
from gpuledger.events.payload import Count, Name, Number, Payload, Text
from gpuledger.events.publishing import BY_WATCHERS, SourceKind, by_service
from gpuledger.events.reach import REQUIREMENTS_MAX, NodeRequirement
from gpuledger.events.registry import registry
from gpuledger.events.settings import SLICES_PER_UNIT_MAX

LISTED_MAX = 1024
TAINTS_MAX = 16

Listed = Annotated[tuple[Name, ...], Field(max_length=LISTED_MAX)]


class LabelSelector(Payload):
    """Required labels, and expressions that must all hold; an empty selector selects everything."""

    labels: Labels = {}
    requirements: Annotated[tuple[NodeRequirement, ...], Field(max_length=REQUIREMENTS_MAX)] = ()


class DeviceFilter(Payload):
    """Selects devices: each part that is given must match; an empty list counts as not given."""

    inventory_ids: Listed = ()
    products: Listed = ()
    pci_vendors: Listed = ()
    pci_devices: Listed = ()
    mig_capable: bool | None = None
    mig_profiles: Listed = ()


class PoolTaint(Payload):
    """A taint on the nodes of a pool, which its pods tolerate."""

    key: Name
    value: Text | None = None
    effect: Name


@registry.event("pool", "defined", BY_WATCHERS)
class PoolDefined(Payload):
    """A pool and its whole spec. Replaces the previous definition. Without an `include` it matches all devices.

    `deleting` means that the pool disappears once it holds no device. `maintenance` is the value of its annotation
    `gpu.deckhouse.io/maintenance`: `enabled` keeps it under maintenance, `confirmed` ends maintenance that drift began.
    """

    uid: Name
    generation: Count = 0
    deleting: bool = False
    provider: Name = "Nvidia"
    backend: Name = "DevicePlugin"
    unit: Literal["Card", "MIG"]
    mig_profile: Name | None = None
    slices_per_unit: Annotated[int, Field(ge=1, le=SLICES_PER_UNIT_MAX)] = 1
    devices_per_node_max: Number | None = None
    node_selector: LabelSelector = LabelSelector.model_construct()
    include: DeviceFilter = DeviceFilter.model_construct()
    exclude: DeviceFilter | None = None
    requires_annotation: bool = True
    auto_approve: LabelSelector | None = None
    strategy: Literal["BinPack", "Spread"] | None = None
    topology_key: Name | None = None
    taints_enabled: bool = True
    taints: Annotated[tuple[PoolTaint, ...], Field(max_length=TAINTS_MAX)] = ()
    maintenance: Literal["enabled", "confirmed"] | None = None


@registry.event("pool", "gone", BY_WATCHERS)
class PoolGone(Payload):
    """The pool's object is gone."""

    uid: Name | None = None


@registry.event("pool", "changed", by_service(SourceKind.POOLS))
class PoolChanged(Payload):
    """The state of the pool from now on: how many units it offers, and all of its conditions.

    `total` is None if it is not known: the pool is not supported, or not configured.
    """

    total: Count | None = None
    observed_generation: Count = 0
    conditions: tuple[Condition, ...] = Field(default=(), max_length=CONDITIONS_MAX)


@registry.event("pool", "released", by_service(SourceKind.POOLS))
class PoolReleased(Payload):
    """The pool is being deleted and no longer holds any device; its finalizer may be removed."""
