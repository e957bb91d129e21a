"""The nodes projection: what is known of each node, now and at any time."""

from gpuledger.domain.devices import nodes
from gpuledger.projection.definition import Projection


class NodesProjection(Projection):
    """Folds `node.*` and `slot.declared` events."""

    name = "nodes"
    version = 1
    specs = nodes.SPECS
    handlers = nodes.HANDLERS

    def new_state(self) -> nodes.Nodes:
        """An empty state."""
        return nodes.Nodes()
