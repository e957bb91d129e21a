"""Reads the Nodes that are to be written: those that are asked for at about the same time by one request.

That is a list of the Nodes with these names as their label `kubernetes.io/hostname`, as kubelets set it. The server
answers from its cache, whatever there is of its versions: all that may follow from such a copy is a write, which the
server refuses where the copy is not the newest. A Node whose label says something else is read alone, by its name.
"""

import asyncio
from typing import Final, NamedTuple

import structlog

from gpuledger.api.kinds import NODES
from gpuledger.api.labels import HOSTNAME
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, is_refusal
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import RefusedError

LABEL_LENGTH_MAX: Final = 63
"""Characters in the value of a label; a Node's name may have more."""

log = structlog.get_logger("gpuledger.nodewriter")


class FoundNode(NamedTuple):
    """A Node; `is_newest` unless it is a copy that may be of a moment ago."""

    node: Object
    is_newest: bool


class NodeReads:
    """Reads Nodes for the workers of one executor, each of which asks for one at a time.

    One request is under way at a time, and who asks meanwhile is answered by the next one, so as many Nodes are read at
    once as there are workers, at most. Where a list finds none of several, or is refused, each is read alone from then
    on: the labels of that cluster's Nodes are not their names.
    """

    def __init__(self, client: KubeClient, breaker: CircuitBreaker) -> None:
        self._client = client
        self._breaker = breaker
        self._asked: dict[str, None] = {}
        self._found: dict[str, Object] = {}
        self._one_at_a_time = asyncio.Lock()
        self._reads_alone = False

    async def alone(self, name: str) -> Object:
        """The newest version of a Node; raises as `KubeClient.get`."""
        async with self._breaker.request():
            return await self._client.get(NODES, name)

    async def together(self, name: str) -> FoundNode:
        """A Node, read with those that others ask for meanwhile where that is possible; raises as `alone`."""
        if self._reads_alone or len(name) > LABEL_LENGTH_MAX:
            return FoundNode(await self.alone(name), is_newest=True)
        self._asked[name] = None
        async with self._one_at_a_time:
            if name in self._asked:
                async with self._breaker.request():
                    names, self._asked = list(self._asked), {}
                    if len(names) == 1:
                        return FoundNode(await self._client.get(NODES, name), is_newest=True)
                    await self._list(names)
        node = self._found.pop(name, None)
        return FoundNode(await self.alone(name), is_newest=True) if node is None else FoundNode(node, is_newest=False)

    async def _list(self, names: list[str]) -> None:
        for name in names:
            self._found.pop(name, None)
        selection, listed = Selection(labels=f"{HOSTNAME} in ({','.join(names)})"), list[Object]()
        try:
            listed = await self._client.list_cached(NODES, selection)
        except RefusedError as error:
            if not is_refusal(error):
                raise
            log.warning("nodewriter.list-refused", reason=str(error))
        asked = set(names)
        found = {name: node for node in listed if (name := node["metadata"]["name"]) in asked}
        self._reads_alone = not found
        self._found |= found
