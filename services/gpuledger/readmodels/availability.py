"""The availability projection: slices, claims, who holds which device, and how pools stood, now and before."""

from gpuledger.domain.dra import fold as cluster
from gpuledger.domain.dra import rows
from gpuledger.projection.definition import Projection


class AvailabilityProjection(Projection):
    """Folds `slice.*`, `claim.*`, `device-class.*`, `taint-rule.*` and nodes' labels."""

    name = "availability"
    version = 1
    specs = rows.SPECS
    handlers = cluster.HANDLERS

    def new_state(self) -> cluster.Availability:
        """An empty state."""
        return cluster.Availability()
