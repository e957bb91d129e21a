"""Changes the kubelet's requests to create containers, and reports what it changed or could not change.

A pod with DeviceAllocations fails closed: rather no container than one with another pod's card, whatever goes wrong
here. Every other request passes as it came, also one that cannot be read: no pod that is none of ours may depend on us.
"""

import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog
from google.protobuf.message import DecodeError

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.sharing.container_env import VISIBLE_DEVICES
from gpuledger.events.payload import Payload, truncated
from gpuledger.events.runtime import REPLACED_MAX, NodeContainerDevicesInjected, NodeContainerDevicesRefused
from gpuledger.runtimeproxy.cri_pb2 import CreateContainerRequest
from gpuledger.runtimeproxy.decide import ContainerGpus, ContainerRefusal, NewContainer, RefusalReason, decide
from gpuledger.runtimeproxy.errors import CallRefusedError
from gpuledger.runtimeproxy.forwarding import Change, ChangedMessage
from gpuledger.runtimeproxy.injection import DeviceNaming, inject
from gpuledger.runtimeproxy.node_view import NodeView

CREATE_METHODS: Final = tuple(f"/runtime.{version}.RuntimeService/CreateContainer" for version in ("v1", "v1alpha2"))
"""Both versions have the same message, as far as this reads it; kubelets before 1.26 may use the older one."""

REFUSALS_MAX: Final = 1024
"""So many containers' last refusals are kept, so that the kubelet's repeats are not recorded again."""

Notify = Callable[[], None]

log = structlog.get_logger("gpuledger.runtimeproxy")


class FactSink(Protocol):
    """Takes facts about the node, for its agent to record."""

    async def record(self, payload: Payload) -> None:
        """Keep the fact; whatever goes wrong is counted there, and raises nothing."""
        ...


class ContainerCreation:
    """The change of `CreateContainer`; `node` is what the agent says at present.

    `on_unassigned` is called when a container was created that has GPUs and is none of a pod with DeviceAllocations.
    """

    def __init__(
        self,
        names: SharingNames,
        naming: DeviceNaming,
        node: Callable[[], NodeView],
        facts: FactSink,
        on_unassigned: Notify,
    ) -> None:
        self._names = names
        self._naming = naming
        self._node = node
        self._facts = facts
        self._on_unassigned = on_unassigned
        self._mark = names.allocated.encode()
        self._refused: OrderedDict[tuple[str, str], str] = OrderedDict()
        self.injected = 0

    def changes(self) -> dict[str, Change]:
        """The changes by method, for the forwarder."""
        return dict.fromkeys(CREATE_METHODS, self.change)

    async def change(self, message: bytes) -> ChangedMessage:
        """The request for the runtime.

        Raises:
            CallRefusedError: the pod has DeviceAllocations, and the container cannot get its devices.
        """
        if self._mark not in message:
            return self._passed(message)
        try:
            return await self._changed(message)
        except CallRefusedError:
            raise
        except Exception as error:
            # Never with the variables of the frames: the request holds the container's secrets.
            where = "".join(traceback.format_exception(error))
            log.error("a request to create a container cannot be changed", error=repr(error), where=where)
            raise CallRefusedError(
                f"No devices for this container: gpuledger's runtime proxy failed ({error!r}). See its log on the "
                "node; the kubelet tries again."
            ) from error

    async def _changed(self, message: bytes) -> ChangedMessage:
        try:
            request = CreateContainerRequest.FromString(message)
        except DecodeError as error:
            raise CallRefusedError(
                f"No devices for this container ({RefusalReason.UNREADABLE_REQUEST}): the kubelet's request names "
                f"{self._names.allocated} and cannot be read: {error}. Upgrade gpuledger's runtime proxy."
            ) from error
        container = container_of(request)
        match decide(container, self._node(), self._names):
            case ContainerRefusal() as refusal:
                await self._record_refusal(container, refusal)
                raise CallRefusedError(refusal.message)
            case ContainerGpus() as gpus:
                replaced = inject(request.config, gpus, self._naming)
                return ChangedMessage(request.SerializeToString(), self._on_created(container, gpus, replaced))
            case None:
                return self._passed(message)

    def _passed(self, message: bytes) -> ChangedMessage:
        if VISIBLE_DEVICES.encode() not in message and b"nvidia.com/" not in message:
            return ChangedMessage(message)

        async def on_success() -> None:
            self._on_unassigned()

        return ChangedMessage(message, on_success)

    def _on_created(
        self, container: NewContainer, gpus: ContainerGpus, replaced: tuple[str, ...]
    ) -> Callable[[], Awaitable[None]]:
        async def on_success() -> None:
            self.injected += 1
            self._refused.pop((container.uid, container.name), None)
            await self._facts.record(
                NodeContainerDevicesInjected(
                    pod=container.pod_id,
                    uid=container.uid,
                    container=container.name,
                    attempt=container.attempt,
                    devices=gpus.devices,
                    variables=dict(gpus.variables),
                    replaced=tuple(map(truncated, replaced[:REPLACED_MAX])),
                )
            )

        return on_success

    async def _record_refusal(self, container: NewContainer, refusal: ContainerRefusal) -> None:
        key = (container.uid, container.name)
        if self._refused.get(key) == refusal.message:
            return
        self._refused[key] = refusal.message
        if len(self._refused) > REFUSALS_MAX:
            self._refused.popitem(last=False)
        log.warning("a container gets no devices", pod=container.pod_id, container=container.name, why=refusal.message)
        await self._facts.record(
            NodeContainerDevicesRefused(
                pod=container.pod_id,
                uid=container.uid,
                container=container.name,
                reason=refusal.reason,
                message=truncated(refusal.message),
            )
        )


def container_of(request: CreateContainerRequest) -> NewContainer:
    """The container that the kubelet asks for, and its pod."""
    pod, config = request.sandbox_config, request.config
    return NewContainer(
        pod.metadata.namespace,
        pod.metadata.name,
        pod.metadata.uid,
        config.metadata.name,
        dict(pod.annotations),
        config.metadata.attempt,
    )
