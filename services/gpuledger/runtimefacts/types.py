"""Which facts other processes of a node may hand to the agent, and what the agent hands to the runtime proxy. Pure."""

from typing import Any, Final, NamedTuple

from gpuledger.events.machine_config import NodeConfigReported
from gpuledger.events.runtime import (
    NodeContainerDevicesInjected,
    NodeContainerDevicesRefused,
    NodeGpuCheckpointsObserved,
)
from gpuledger.events.shares import NodeDevicesAllocated
from gpuledger.events.sharing import NodeDevicesShared


class FactSource(NamedTuple):
    """A process that leaves facts. `part` is what records them in the agent, `types` all that it may leave.

    The agent records nothing else that it finds in the folder of that process.
    """

    name: str
    part: str
    types: frozenset[str]


RUNTIME_PROXY: Final = FactSource(
    "the runtime proxy",
    "runtime facts",
    frozenset({NodeContainerDevicesInjected.TYPE, NodeContainerDevicesRefused.TYPE, NodeGpuCheckpointsObserved.TYPE}),
)
CONFIG_AGENT: Final = FactSource(
    "the agent of machine configuration", "config facts", frozenset({NodeConfigReported.TYPE})
)

SHARED: Final = "shared"
ALLOCATED: Final = "allocated"


def node_document(shared: NodeDevicesShared | None, allocated: NodeDevicesAllocated | None) -> dict[str, Any]:
    """What the agent knows of the node, as JSON."""
    return {
        SHARED: None if shared is None else shared.model_dump(mode="json", exclude_defaults=True),
        ALLOCATED: None if allocated is None else allocated.model_dump(mode="json", exclude_defaults=True),
    }


def read_node_document(document: Any) -> tuple[NodeDevicesShared | None, NodeDevicesAllocated | None]:  # noqa: ANN401
    """What the agent knows of the node, of such JSON; None: no agent has written any. Raises ValueError."""
    if document is None:
        return None, None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    shared, allocated = document.get(SHARED), document.get(ALLOCATED)
    return (
        None if shared is None else NodeDevicesShared.model_validate(shared),
        None if allocated is None else NodeDevicesAllocated.model_validate(allocated),
    )
