"""How people name a pool. Apart from the pools themselves, whose rules a command that asks for none need not import."""

from typing import NamedTuple

from gpuledger.api.pool_ref import PoolRef


class PoolName(NamedTuple):
    """How people name a pool. `is_cluster` None: of either kind."""

    name: str
    namespace: str | None = None
    is_cluster: bool | None = None

    @property
    def id(self) -> str:
        """The id of the pool with this full name; without a namespace that is a ClusterGPUPool."""
        return self.name if self.namespace is None else f"{self.namespace}/{self.name}"

    def matches(self, pool: str) -> bool:
        """Whether the name may stand for the pool of this id."""
        if self.is_cluster is not None and self.is_cluster == bool(PoolRef.parse(pool).namespace):
            return False
        if self.namespace is not None:
            return pool == self.id
        return PoolRef.parse(pool).name == self.name
