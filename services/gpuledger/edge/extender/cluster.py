"""Writes to pods: the annotation with their devices, and their binding. Each write names the pod's UID.

Requests have a time-out of their own, for kube-scheduler waits; one that is cut off may have been carried out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote

from gpuledger.api.kinds import PODS
from gpuledger.api.sharing import SharingNames
from gpuledger.edge.extender.pods import SchedulablePod, read_pod
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker
from gpuledger.edge.kube.client import KubeClient, KubeRequest
from gpuledger.edge.kube.errors import InvalidError, NotFoundError, UnavailableError

T = TypeVar("T")


class PodWriter:
    """Reads pods, and writes to them."""

    def __init__(self, client: KubeClient, breaker: CircuitBreaker, names: SharingNames, timeout_s: float) -> None:
        self._client = client
        self._breaker = breaker
        self._names = names
        self._timeout_s = timeout_s
        self._place = f"/metadata/annotations/{names.allocated.replace('~', '~0').replace('/', '~1')}"

    async def get(self, namespace: str, name: str) -> SchedulablePod | None:
        """The pod; None if there is none. Raises KubeError."""
        try:
            return read_pod(await self._within(lambda: self._client.get(PODS, name, namespace)), self._names)
        except NotFoundError:
            return None

    async def annotate(self, pod: SchedulablePod, text: str) -> None:
        """Write the annotation with the pod's devices, unless it is bound: what a bound pod has is what runs.

        Raises:
            InvalidError: it is bound, or another one by now.
            NotFoundError: there is none.
            KubeError: it may or may not be written.
        """
        try:
            await self._annotate(pod, text, has_others=pod.has_annotations)
        except InvalidError:
            # The first annotation of a pod is written otherwise than a further one, and may have come meanwhile.
            await self._annotate(pod, text, has_others=not pod.has_annotations)

    async def _annotate(self, pod: SchedulablePod, text: str, *, has_others: bool) -> None:
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": "/spec/nodeName", "value": None},
        ]
        if has_others:
            operations.append({"op": "add", "path": self._place, "value": text})
        else:
            operations.append({"op": "test", "path": "/metadata/annotations", "value": None})
            operations.append({"op": "add", "path": "/metadata/annotations", "value": {self._names.allocated: text}})
        await self._within(lambda: self._client.json_patch(PODS, pod.name, operations, pod.namespace))

    async def remove_annotation(self, namespace: str, name: str, uid: str, text: str) -> None:
        """Remove the annotation if it has this text still. Raises KubeError where that cannot be found out."""
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": self._place, "value": text},
            {"op": "remove", "path": self._place},
        ]
        try:
            await self._within(lambda: self._client.json_patch(PODS, name, operations, namespace))
        except (InvalidError, NotFoundError):
            return

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Bind the pod to the node.

        Raises:
            ConflictError: it is bound, being deleted, or another one by now.
            NotFoundError: it is gone.
            KubeError: it may or may not be bound.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"{PODS.path(namespace)}/{quote(name, safe='')}/binding"
        request = KubeRequest(f'bind pods "{name}"', "POST", path, {}, body)
        await self._within(lambda: self._client.send(request))

    async def _within(self, send: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s), self._breaker.request():
                return await send()
        except TimeoutError as error:
            message = f"{self._client.url} has not answered within {self._timeout_s:g} s. Look into the server's log."
            raise UnavailableError(message) from error
