"""Pools as the ledger knows them now: which there are, and what was decided about them."""

from typing import Final, NamedTuple

from gpuledger.cli.backend import Backend, bring_current
from gpuledger.cli.errors import CliError
from gpuledger.cli.get.nouns import KUBE_NOUNS
from gpuledger.cli.identity import Recorded, recorded
from gpuledger.cli.live_state import load
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.domain.pools import rows
from gpuledger.domain.pools.spec import Pool, is_namespaced, name_of
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DeviceAssignmentChanged

POOL_KINDS: Final = ("pools", "gpupools", "clustergpupools")
NOT_FOR_PAGES: Final = (rows.POOL_TALLY.name, rows.POOL_TROUBLE.name, rows.POOL_MODULE.name)
"""Tables that nothing is shown of."""


class PoolName(NamedTuple):
    """How people name a pool. `is_cluster` None: of either kind."""

    name: str
    namespace: str | None = None
    is_cluster: bool | None = None

    @property
    def id(self) -> str:
        """The id of the pool that is named in full; without a namespace that is a ClusterGPUPool."""
        return self.name if self.namespace is None else f"{self.namespace}/{self.name}"

    def means(self, pool: str) -> bool:
        """Whether the pool of this id is meant."""
        if self.is_cluster is not None and self.is_cluster == is_namespaced(pool):
            return False
        if self.namespace is not None:
            return pool == self.id
        return name_of(pool) == self.name


def pool_name(kind: str, name: str, namespace: str | None = None) -> PoolName | None:
    """What a name means behind a kind of pool; None behind any other kind. `<namespace>/<name>` names a GPUPool."""
    nouns = {one: KUBE_NOUNS[one] for one in POOL_KINDS}
    noun = next((noun for one, noun in nouns.items() if kind.lower() in (one, *noun.aliases)), None)
    if noun is None:
        return None
    within, _, bare = noun.bare(name).rpartition("/")
    return PoolName(bare, namespace or within or None, None if noun.beside else not noun.resource.namespaced)


async def current_pools(place: Backend) -> PoolFacts:
    """Pools, devices and assignments of now, and the pods that ask for units."""
    projection = PoolsProjection()
    await bring_current(place, [projection])
    state = projection.new_state()
    await load(place, state, without=NOT_FOR_PAGES)
    return state


def pool_named(state: PoolFacts, wanted: PoolName) -> Pool | None:
    """The pool that is meant; None where there is none.

    Raises:
        CliError: several are.
    """
    found = [row for row in state.pool.where("name", wanted.name) if wanted.means(row.subject)]
    if len(found) > 1:
        several = ", ".join(sorted(row.subject for row in found))
        raise CliError(f"Several pools are called {wanted.name!r}: {several}", "Name one with -n, or as NAMESPACE/NAME")
    return found[0] if found else None


async def assignments_of(place: Backend, pool: str) -> list[Recorded]:
    """The decisions by which devices came to a pool, changed in it, and left it."""
    told, inside = list[Recorded](), set[str]()
    for one in await recorded(place, "device", event=DeviceAssignmentChanged.EVENT):
        data, device = one.event.data, one.event.subject
        is_inside = isinstance(data, DeviceAssignmentChanged) and data.pool == pool
        if is_inside or device in inside:
            told.append(one)
        (inside.add if is_inside else inside.discard)(device)
    return told
