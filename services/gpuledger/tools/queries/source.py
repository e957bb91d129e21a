"""Where a command reads the state from: the ledger, or Kubernetes alone where there is no ledger.

Both give the same states, so that whatever is made of a state is the same code. Only a ledger has a past.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from gpuledger.domain.dra.state import Availability
from gpuledger.domain.pools.rows import PoolPod
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.preflight.pod_checks import PodChecks
from gpuledger.tools.queries.availability import availability_as_of, current_availability
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.moments import NOW, PointInTime, sequence_of
from gpuledger.tools.queries.pools import current_pools, pools_as_of, requesting_pods
from gpuledger.tools.queries.preflight import pod_checks
from gpuledger.tools.queries.shares import RecordedShares, recorded_shares
from gpuledger.tools.queries.slice_statuses import Staleness, staleness


class StateSource(Protocol):
    """Gives the states that answers are made of."""

    @property
    def is_present_only(self) -> bool:
        """Whether it has no past."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What could not be read so far, in sentences."""
        ...

    async def availability(self, moment: PointInTime = NOW, *, without: Collection[str] = ()) -> Availability:
        """Slices, claims and who holds what; for the present without the tables that the caller does not need."""
        ...

    async def pools(self, at: datetime | None = None) -> PoolFacts:
        """Pools, their devices, and the pods that request units."""
        ...

    async def pods(self, name: str, at: datetime) -> Mapping[str, PoolPod]:
        """The pod of a name at a time in the past, if it requested units."""
        ...

    async def preflight(self, name: str, at: datetime | None = None) -> PodChecks | None:
        """The preflight checks of the latest pod of a name, by then; None where it has none."""
        ...

    async def shares(self, name: str, at: datetime | None = None) -> RecordedShares | None:
        """Shared devices, who holds what, and the latest pod of a name, by then; None where only a ledger has it."""
        ...

    async def staleness(self) -> Staleness | None:
        """Since when nobody writes the statuses of slices; None where somebody does, or the past is not asked."""
        ...


class LedgerSource:
    """The ledger and its tables."""

    is_present_only = False
    notes: Sequence[str] = ()

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def availability(self, moment: PointInTime = NOW, *, without: Collection[str] = ()) -> Availability:
        """The state as of a moment."""
        if moment.recorded is not None:
            return await availability_as_of(self.backend, await sequence_of(self.backend, moment.recorded))
        if moment.at is not None:
            return await availability_as_of(self.backend, moment.at)
        return await current_availability(self.backend, without=without)

    async def pools(self, at: datetime | None = None) -> PoolFacts:
        """The state now or at a time."""
        return await current_pools(self.backend) if at is None else await pools_as_of(self.backend, at)

    async def pods(self, name: str, at: datetime) -> Mapping[str, PoolPod]:
        """The pod from the log of pods alone."""
        return await requesting_pods(self.backend, at, name)

    async def preflight(self, name: str, at: datetime | None = None) -> PodChecks | None:
        """The checks from their rows, which have the past as well."""
        return await pod_checks(self.backend, name, at)

    async def shares(self, name: str, at: datetime | None = None) -> RecordedShares:
        """The state from the rows of the read model, which have the past as well."""
        return await recorded_shares(self.backend, name, at)

    async def staleness(self) -> Staleness | None:
        """Since when by the recorded settings."""
        return await staleness(self.backend.ledger)
