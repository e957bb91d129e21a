"""The read models, together: projections that decide nothing."""

from gpuledger.projection.definition import Projection
from gpuledger.readmodels.allocations import AllocationsProjection
from gpuledger.readmodels.availability import AvailabilityProjection
from gpuledger.readmodels.devices import DevicesProjection
from gpuledger.readmodels.nodes import NodesProjection
from gpuledger.readmodels.workloads import WorkloadsProjection


def read_models() -> list[Projection]:
    """A new instance of each read model."""
    return [
        DevicesProjection(),
        NodesProjection(),
        WorkloadsProjection(),
        AllocationsProjection(),
        AvailabilityProjection(),
    ]
