"""What a simulated node's agent of machine configuration sees of the Kubernetes API.

All nodes share the simulation's one watch of Nodes, which hands each agent the annotations of its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from gpuledger.api.kinds import NODES, RENDERED_MACHINE_CONFIGS
from gpuledger.configagent.errors import ApiError, RenderedMissingError
from gpuledger.edge.kube.client import MERGE_PATCH, KubeClient, KubeRequest
from gpuledger.edge.kube.errors import KubeError, NotFoundError
from gpuledger.tools.simulation.names import CONFIG_AGENT


class SimulatedNodeApi:
    """The Kubernetes API, as far as one simulated node's agent reaches."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client = client
        self._node = node
        self._annotations: Mapping[str, str] = {}
        self._changed = asyncio.Event()

    def deliver(self, annotations: Mapping[str, str]) -> None:
        """The node's annotations from now on."""
        if annotations != self._annotations:
            self._annotations = annotations
            self._changed.set()

    async def node(self) -> AsyncGenerator[Mapping[str, str]]:
        """The annotations of the own Node, first as they are and then at each change."""
        while True:
            self._changed.clear()
            yield self._annotations
            await self._changed.wait()

    async def rendered(self, name: str) -> Any:  # noqa: ANN401 - the object as JSON
        """A RenderedMachineConfig, as JSON.

        Raises:
            RenderedMissingError: there is none.
            ApiError: the server does not answer, or refuses.
        """
        try:
            return await self._client.get(RENDERED_MACHINE_CONFIGS, name)
        except NotFoundError as error:
            raise RenderedMissingError(str(error), error.code) from error
        except KubeError as error:
            raise ApiError(str(error)) from error

    async def patch(self, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of the own Node; None removes one.

        Raises:
            ApiError: the server does not answer, or refuses.
        """
        what, path = f"patch node {self._node}", f"{NODES.path()}/{self._node}"
        body = {"metadata": {"annotations": dict(annotations)}}
        request = KubeRequest(what, "PATCH", path, {"fieldManager": CONFIG_AGENT}, body, MERGE_PATCH)
        try:
            await self._client.send(request)
        except KubeError as error:
            raise ApiError(str(error)) from error
