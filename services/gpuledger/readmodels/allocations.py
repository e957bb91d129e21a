"""The allocations projection: which containers have which devices, as the agents of their nodes tell."""

from typing import Any

from gpuledger.domain.fact import Fact, Touched
from gpuledger.domain.workloads import allocations
from gpuledger.projection.definition import Projection


class AllocationsProjection(Projection):
    """Folds `allocation.*` events; what a container had is read back when one comes late."""

    name = "allocations"
    version = 1
    specs = allocations.SPECS
    handlers = allocations.HANDLERS
    pages = True

    def new_state(self) -> allocations.Allocations:
        """An empty state."""
        return allocations.Allocations()

    def touched(self, state: Any, fact: Fact) -> Touched:  # noqa: ANN401 - it is this projection's own
        """The past of the container, where the fact may change it."""
        return allocations.touched(state, fact)
