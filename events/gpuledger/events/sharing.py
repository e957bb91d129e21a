"""Fractional GPUs: which devices a node shares, what pods ask of them, and which of them they get (seed 002).

Resources have short names, without the domain (`gpu-core`, `gpu-memory-ratio`, `rdma`); memory is in bytes, everything
else in percent of a device. A pod's id is `<namespace>/<name>`.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from gpuledger.events.payload import Count, Name, Payload, Text
from gpuledger.events.publishing import BY_WATCHERS, SourceKind, by_service
from gpuledger.events.registry import registry

SHARED_DEVICES_MAX = 1024
RESOURCES_MAX = 32
LABELS_MAX = 64
VF_GROUPS_MAX = 16
VFS_MAX = 256
TYPES_MAX = 16
CONTAINERS_MAX = 1024

Amounts = Annotated[dict[Name, Count], Field(max_length=RESOURCES_MAX)]
ShortLabels = Annotated[dict[Name, Text], Field(max_length=LABELS_MAX)]


class SharedTopology(Payload):
    """Where a device sits: CPU socket, NUMA node (unique across sockets), PCIe switch (unique across NUMA nodes)."""

    socket: Count
    numa: Count
    pcie: Name
    bus_id: Name | None = None


class SharedFunction(Payload):
    """A virtual function of a device; `minor` is -1 where nobody numbers them."""

    minor: Annotated[int, Field(ge=-1, le=2**31 - 1)]
    bus_id: Name


class SharedFunctionGroup(Payload):
    """Virtual functions of a device that have the same properties."""

    labels: ShortLabels = {}
    functions: Annotated[tuple[SharedFunction, ...], Field(max_length=VFS_MAX)] = ()


class SharedDevice(Payload):
    """A device that its node shares, with all that it has. `id` is a GPU's UUID, a NIC's bus id."""

    type: Name
    minor: Annotated[int, Field(ge=0, le=2**31 - 1)]
    id: Name | None = None
    healthy: bool
    resources: Amounts
    topology: SharedTopology | None = None
    labels: ShortLabels = {}
    function_groups: Annotated[tuple[SharedFunctionGroup, ...], Field(max_length=VF_GROUPS_MAX)] = ()
    module_id: Count | None = None


CardOwner = Literal["pool", "dra", "none"]


class NotSharedCard(Payload):
    """A card of a node that shares its cards, which somebody else has, and why it is left out."""

    id: Name
    owner: CardOwner
    reason: Name
    message: Text = ""


@registry.event("node", "devices-shared", by_service(SourceKind.SHARING), introduced=True)
class NodeDevicesShared(Payload):
    """All devices that the node offers for sharing, unhealthy ones too. Replaces the previous event.

    `not_shared` are its other cards. `model` is that of its GPUs. Without `enabled` the node shares nothing (any more).
    `labelled_at` is since when the node has the label that this follows from, or has it no more: then pools may have a
    card that this event does not offer.
    """

    enabled: bool = True
    devices: Annotated[tuple[SharedDevice, ...], Field(max_length=SHARED_DEVICES_MAX)] = ()
    not_shared: Annotated[tuple[NotSharedCard, ...], Field(max_length=SHARED_DEVICES_MAX)] = ()
    model: Name | None = None
    partition_policy: Literal["Honor", "Prefer"] | None = None
    labelled_at: AwareDatetime | None = None


class AllocatedDevice(Payload):
    """What a pod gets of one device."""

    minor: Annotated[int, Field(ge=0, le=2**31 - 1)]
    id: Name | None = None
    resources: Amounts = {}
    functions: Annotated[tuple[SharedFunction, ...], Field(max_length=VFS_MAX)] = ()


Devices = Annotated[tuple[AllocatedDevice, ...], Field(max_length=SHARED_DEVICES_MAX)]
Allocation = Annotated[dict[Name, Devices], Field(max_length=TYPES_MAX)]
"""What a pod gets, by type of device."""


class ContainerShare(Payload):
    """What one container of a pod asks for, and whether it is an init container, or one that is a sidecar."""

    name: Name
    requests: Amounts
    init: bool = False
    sidecar: bool = False


@registry.event("pod", "sharing-observed", BY_WATCHERS, introduced=True)
class PodSharingObserved(Payload):
    """A pod that asks for shared devices, or has some. Replaces the previous event.

    `requests` are what all its containers ask for, counted as Kubernetes counts. `hint`, `joint` and `partition` are
    its annotations as they stand; `allocation` is the one of its DeviceAllocations, None without one, and `unreadable`
    says what is wrong with it. `started` says that a container of it has run. A pod that has ended is gone.
    """

    uid: Name
    node: Name | None = None
    scheduler: Name | None = None
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0
    requests: Amounts = {}
    containers: Annotated[tuple[ContainerShare, ...], Field(max_length=CONTAINERS_MAX)] = ()
    hint: Text | None = None
    joint: Text | None = None
    partition: Text | None = None
    allocation: Allocation | None = None
    unreadable: Text | None = None
    started: bool = False


@registry.event("pod", "sharing-gone", BY_WATCHERS, introduced=True)
class PodSharingGone(Payload):
    """The pod has ended, or its object is gone: it holds no shared devices any more."""

    uid: Name | None = None


_BY_EXTENDER = by_service(SourceKind.EXTENDER)


@registry.event("pod", "devices-reserved", _BY_EXTENDER, introduced=True)
class PodDevicesReserved(Payload):
    """The pod is to run on the node with these devices, which nobody else gets from now on.

    An intent: the annotation and the binding follow, and `pod.devices-bound` or `pod.devices-released` says what came
    of it. `strategy` chose the devices.
    """

    uid: Name
    node: Name
    requests: Amounts = {}
    allocation: Allocation
    strategy: Name


@registry.event("pod", "devices-bound", _BY_EXTENDER, introduced=True)
class PodDevicesBound(Payload):
    """The annotation is written and the pod is bound to the node."""

    uid: Name
    node: Name


@registry.event("pod", "devices-released", _BY_EXTENDER, introduced=True)
class PodDevicesReleased(Payload):
    """The pod does not get the devices after all, and others may have them."""

    uid: Name
    node: Name
    reason: Name
    message: Text = ""
