"""StorageClasses, which people and charts look up: nobody provisions volumes here."""

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.resources import Strategy
from gpuledger.local.kubeapi.strategies.core_shared import fill


class StorageClassStrategy(Strategy):
    """A StorageClass, with the usual defaults."""

    def default(self, obj: Object) -> None:
        """Volumes go with their claims, and come as soon as those do."""
        fill(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})
