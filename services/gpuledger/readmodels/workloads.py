"""The workloads projection: workloads and their GPU allocations over time."""

from typing import Any

from gpuledger.domain.fact import Fact, Touched
from gpuledger.domain.workloads import fold as workloads
from gpuledger.projection.definition import Projection


class WorkloadsProjection(Projection):
    """Folds `workload.*` events; ended workloads are read back when one still comes."""

    name = "workloads"
    version = 1
    specs = workloads.SPECS
    handlers = workloads.HANDLERS
    pages = True

    def new_state(self) -> workloads.Workloads:
        """An empty state."""
        return workloads.Workloads()

    def touched(self, state: Any, fact: Fact) -> Touched:  # noqa: ANN401, ARG002 - the fact says it all
        """A workload's row and its allocations."""
        return workloads.touched(fact)
