"""Shared devices of nodes, what pods ask of them and get: the words of everything about sharing (seed 002). Pure.

Amounts go by the short name of their resource; memory is in bytes, everything else in percent of a device. What is 0 is
left out.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

Amounts = Mapping[str, int]
NOTHING: Final[Amounts] = {}


class Topology(NamedTuple):
    """Where a device sits: CPU socket, NUMA node (unique across sockets), PCIe switch (unique across NUMA nodes)."""

    socket: int
    numa: int
    pcie: str
    bus_id: str | None = None


class VirtualFunction(NamedTuple):
    """A virtual function of a device."""

    minor: int
    bus_id: str


class FunctionGroup(NamedTuple):
    """Virtual functions that have the same properties."""

    labels: Mapping[str, str]
    functions: tuple[VirtualFunction, ...]


class Device(NamedTuple):
    """A device of a node with all that it has; an unhealthy one has nothing to give."""

    type: str
    minor: int
    healthy: bool
    resources: Amounts
    topology: Topology | None = None
    labels: Mapping[str, str] = {}
    function_groups: tuple[FunctionGroup, ...] = ()
    id: str | None = None


class Allocated(NamedTuple):
    """What a pod gets of one device."""

    minor: int
    resources: Amounts
    functions: tuple[VirtualFunction, ...] = ()
    id: str | None = None


Allocation = Mapping[str, tuple[Allocated, ...]]
"""What a pod gets, by type of device."""


class Scope(StrEnum):
    """How near each other devices are, the narrowest first."""

    DEVICE = "Device"
    PCIE = "PCIe"
    NUMA = "NUMANode"
    NODE = "Node"


class LabelRequirement(NamedTuple):
    """One requirement of a label selector; `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()


class LabelSelector(NamedTuple):
    """Requirements that all have to hold; without any it selects everything."""

    requirements: tuple[LabelRequirement, ...] = ()


class Hint(NamedTuple):
    """What a pod says of its devices of one type. `allocate_strategy` is ApplyForAll, RequestsAsCount or None."""

    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: str | None = None
    exclusive_policy: str | None = None
    required_scope: Scope | None = None


class JointAllocate(NamedTuple):
    """Devices of these types are to be near each other; `same_pcie`: at the same switches, or not at all."""

    types: tuple[str, ...]
    same_pcie: bool = False


class PartitionSpec(NamedTuple):
    """The pod's GPUs have to be a partition of its node's table; `restricted`: of the best score alone."""

    restricted: bool = False
    ring_bus_bandwidth: int | None = None


class Partition(NamedTuple):
    """GPUs that are linked with each other, by their minors."""

    minors: frozenset[int]
    link_type: str
    score: int = 1
    ring_bus_bandwidth: int | None = None


class TypeRequest(NamedTuple):
    """What a pod asks of one type of device: so many devices, and of each so much; `shared`: of GPUs, less than whole.

    Hints that make the number depend on the node (ApplyForAll) are in `hint`.
    """

    type: str
    number: int
    per_device: Amounts
    shared: bool
    hint: Hint = Hint()


class PodRequest(NamedTuple):
    """All that a pod asks of shared devices; hashable through `key`, by which placements are remembered.

    `numa_nodes` limits it to devices there, `designated` to those devices up to those amounts.
    """

    types: tuple[TypeRequest, ...]
    joint: JointAllocate | None = None
    partition: PartitionSpec | None = None
    numa_nodes: frozenset[int] | None = None
    designated: Allocation | None = None

    def of(self, kind: str) -> TypeRequest | None:
        """What it asks of one type; None: nothing."""
        return next((one for one in self.types if one.type == kind), None)


class Refusal(NamedTuple):
    """Why a node cannot take a pod. `unresolvable`: evicting others would not help.

    `reason` is a sentence for people, as the scheduler shows it.
    """

    reason: str
    unresolvable: bool = False


class NodeState:
    """The devices of a node and what pods hold of them.

    `version` grows with every change, so that what was computed of a state can be remembered. A pod counts once.
    """

    __slots__ = (
        "devices",
        "functions_held",
        "holders",
        "labels",
        "name",
        "partition_policy",
        "partitions",
        "used",
        "version",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.devices: dict[str, dict[int, Device]] = {}
        self.holders: dict[str, Allocation] = {}
        self.used: dict[str, dict[int, dict[str, int]]] = {}
        self.functions_held: dict[tuple[str, int], set[str]] = {}
        self.partitions: Mapping[int, tuple[Partition, ...]] = {}
        self.partition_policy: str | None = None
        self.labels: Mapping[str, str] = {}
        self.version = 0

    def set_devices(self, devices: Mapping[str, Mapping[int, Device]]) -> None:
        """Replace all devices; what pods hold stays, also of devices that are gone."""
        self.devices = {kind: dict(sorted(of_type.items())) for kind, of_type in devices.items()}
        self.version += 1

    def hold(self, pod: str, allocation: Allocation) -> None:
        """The pod, by its UID, holds this from now on, in place of what it held."""
        self.release(pod)
        self.holders[pod] = allocation
        for kind, devices in allocation.items():
            for one in devices:
                used = self.used.setdefault(kind, {}).setdefault(one.minor, {})
                for resource, amount in one.resources.items():
                    used[resource] = used.get(resource, 0) + amount
                if one.functions:
                    self.functions_held.setdefault((kind, one.minor), set()).update(vf.bus_id for vf in one.functions)
        self.version += 1

    def release(self, pod: str) -> None:
        """The pod holds nothing any more."""
        allocation = self.holders.pop(pod, None)
        if allocation is None:
            return
        for kind, devices in allocation.items():
            for one in devices:
                self._let_go(kind, one)
        self.version += 1

    def _let_go(self, kind: str, one: Allocated) -> None:
        """Subtract what a pod held, and leave no zeros behind. A function that another pod holds as well stays held."""
        of_type = self.used.get(kind, {})
        used = of_type.get(one.minor, {})
        for resource, amount in one.resources.items():
            used[resource] = used.get(resource, 0) - amount
            if not used[resource]:
                del used[resource]
        if not used:
            of_type.pop(one.minor, None)
        if not of_type:
            self.used.pop(kind, None)
        if one.functions:
            self._let_go_functions(kind, one.minor)

    def _let_go_functions(self, kind: str, minor: int) -> None:
        devices = (one for held in self.holders.values() for one in held.get(kind, ()) if one.minor == minor)
        still = {vf.bus_id for one in devices for vf in one.functions}
        if still:
            self.functions_held[kind, minor] = still
        else:
            self.functions_held.pop((kind, minor), None)

    def free(self, kind: str, minor: int) -> dict[str, int]:
        """What is left of a device, never below 0; nothing of one that is unhealthy or gone."""
        device = self.devices.get(kind, {}).get(minor)
        if device is None or not device.healthy:
            return {}
        used = self.used.get(kind, {}).get(minor, NOTHING)
        return {resource: max(0, total - used.get(resource, 0)) for resource, total in device.resources.items()}
