"""The projections of the deciders. A tool that reads what the read models have need not import them."""

from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.deciders.health.projection import HealthProjection
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.deciders.remediation.projection import RemediationProjection
from gpuledger.deciders.rollout.projection import RolloutProjection
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.deciders.sharing.projection import SharingProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.projection.definition import Projection


def deciders() -> list[Projection]:
    """A new instance of each."""
    return [
        SourcesProjection(),
        InventoryProjection(),
        BootstrapProjection(),
        PoolsProjection(),
        SharingProjection(),
        HealthProjection(),
        MaintenanceProjection(),
        RemediationProjection(),
        RolloutProjection(),
        SealsProjection(),
    ]
