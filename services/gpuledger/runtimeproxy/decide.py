"""Decides which GPUs a container gets that the kubelet is about to create, by the annotation of its pod. Pure.

A pod's DeviceAllocations are for the pod (seed 002, 4.2.2), and CRI does not say what a container requests. Where the
node's agent says which containers request GPUs, those get them and the others see none; where it does not, all
containers of the pod see the pod's GPUs, as Koordinator's hook has it, init containers too.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from gpuledger.api.sharing import GPU, SharingNames
from gpuledger.domain.sharing.annotation import read_allocation
from gpuledger.domain.sharing.container_env import HIDDEN, VISIBLE_DEVICES, UnnamedGpuError, container_environment
from gpuledger.runtimeproxy.node_view import NodeView


class RefusalReason(StrEnum):
    """Why a container of a pod with DeviceAllocations is not created."""

    UNREADABLE_ANNOTATION = "UnreadableAnnotation"
    UNNAMED_DEVICE = "UnnamedDevice"
    UNREADABLE_REQUEST = "UnreadableRequest"
    INTERNAL_ERROR = "InternalError"


class NewContainer(NamedTuple):
    """A container that the kubelet wants created, and its pod with the annotations that the kubelet has of it."""

    namespace: str
    pod: str
    uid: str
    name: str
    annotations: Mapping[str, str]
    attempt: int = 0

    @property
    def pod_id(self) -> str:
        """`<namespace>/<name>` of the pod."""
        return f"{self.namespace}/{self.pod}"


class ContainerGpus(NamedTuple):
    """What the container gets in place of what anybody else gave it; `devices` are UUIDs, none if it sees none."""

    devices: tuple[str, ...]
    variables: Mapping[str, str]


class ContainerRefusal(NamedTuple):
    """Why the container is not created; the message is for whoever reads the pod's events."""

    reason: RefusalReason
    message: str


def decide(container: NewContainer, node: NodeView, names: SharingNames) -> ContainerGpus | ContainerRefusal | None:
    """What the container gets; None: its pod has no GPUs by DeviceAllocations, so it stays as it is."""
    text = container.annotations.get(names.allocated)
    if text is None:
        return None
    try:
        allocation = read_allocation(text, names)
    except ValueError as error:
        return ContainerRefusal(RefusalReason.UNREADABLE_ANNOTATION, _unreadable(container, names, str(error)))
    if not allocation.get(GPU):
        return None
    part = node.part_of(container.uid, container.name)
    try:
        variables = container_environment(allocation, node.devices(), part)
    except UnnamedGpuError as error:
        return ContainerRefusal(
            RefusalReason.UNNAMED_DEVICE,
            f"No devices for container {container.name} of pod {container.pod_id}: {error} The kubelet tries again.",
        )
    uuids = tuple(filter(None, variables.get(VISIBLE_DEVICES, "").split(",")))
    return ContainerGpus(uuids, variables if uuids else {VISIBLE_DEVICES: HIDDEN})


def _unreadable(container: NewContainer, names: SharingNames, problem: str) -> str:
    return (
        f"No devices for container {container.name} of pod {container.pod_id}: its annotation {names.allocated} is "
        f"unreadable: {problem}. Only the scheduler writes it; delete the pod, so that it is scheduled anew."
    )
