"""Finds a node on which claims can have everything they request, or else the node that comes closest. Pure.

It tries every node in turn, within bounds. Where a node has enough for each request but not for all of them, it repeats
the search without constraints, to name the ones that cannot be met.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpuledger.domain.dra.candidates import Candidate, ClusterDevices, VisiblePool
from gpuledger.domain.dra.constraints import Mismatch
from gpuledger.domain.dra.device_state import UnavailableReason
from gpuledger.domain.dra.matching import (
    AllocatedDevice,
    ClaimDemand,
    Option,
    OutOfStepsError,
    Search,
    Steps,
    attribute_of,
    concerns,
)
from gpuledger.domain.dra.objects import LabelledNode, PoolId
from gpuledger.events.claim import Asked, Constraint, Wish

EXAMINED_MAX = 500_000
"""The most devices to examine, each counted for every request and every node."""

NOT_OF_ALL = frozenset({Mismatch.UNREACHABLE, UnavailableReason.CAPACITY, UnavailableReason.OUTDATED})
"""Constraints that exclude a device from what a request for all devices means."""

Allows = Callable[[LabelledNode], bool]


class PendingClaim(NamedTuple):
    """A claim without an allocation; `claim` is `namespace/name`."""

    claim: str
    requested: Asked


class Supply(NamedTuple):
    """How many devices an option requests, and how many the node has for it."""

    claim: str
    label: str
    requested: int
    available: int


class Disagreement(NamedTuple):
    """A constraint that cannot be met; `values` counts, by request, the devices with each value of the attribute."""

    claim: str
    constraint: Constraint
    values: tuple[tuple[str, tuple[tuple[object, int], ...]], ...]


class Placement(NamedTuple):
    """The node on which all requests fit, or else the closest one, with what that one has in `best`.

    `allocated` is set where they fit. Otherwise `disagreements` are the constraints without which they would, and
    `is_scarce` means that requests compete for the same devices. `is_decided` is false where a bound was reached.
    """

    node: str | None
    allocated: tuple[AllocatedDevice, ...] | None
    best: tuple[Supply, ...] = ()
    most: tuple[tuple[Supply, str], ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    is_scarce: bool = False
    is_decided: bool = True
    nodes: int = 0


class _Site(NamedTuple):
    """A node with the devices that it has for each option of the claims."""

    node: LabelledNode
    demands: tuple[ClaimDemand, ...]
    left: dict[PoolId, dict[str, dict[str, int]]]
    examined: int

    def search(self, steps: Steps, demands: Sequence[ClaimDemand] | None = None) -> tuple[AllocatedDevice, ...] | None:
        """Devices for all requests at once, or None."""
        return Search(self.demands if demands is None else demands, self.left, steps).found()

    @property
    def supplies(self) -> list[list[Supply]]:
        """The supply for every option of every request."""
        return [
            [Supply(demand.claim, one.label, one.number, _available_count(one)) for one in options]
            for demand in self.demands
            for options in demand.requests
        ]


def nodes_of(cluster: ClusterDevices) -> list[LabelledNode]:
    """The nodes that claims may be used on; one without a name where no node is known at all."""
    named = {row.node for row in cluster.state.slice.rows.values() if row.node}
    names = sorted(named | cluster.nodes.keys())
    return [cluster.state.node(name) for name in names] or [LabelledNode("", {})]


def place_claims(cluster: ClusterDevices, claims: Sequence[PendingClaim], nodes: Sequence[LabelledNode]) -> Placement:
    """Find a node on which the claims can have everything that they request."""
    steps, examined, most = Steps(), 0, dict[tuple[str, str], tuple[Supply, str]]()
    best: _Site | None = None
    missed: _Site | None = None
    is_decided = True
    for node in nodes:
        site = _site(cluster, claims, node)
        examined += site.examined
        _note_most(most, site)
        best = site if best is None or _closeness(site) > _closeness(best) else best
        if _closeness(site) == 1:
            try:
                allocated = site.search(steps)
            except OutOfStepsError:
                return _missing(best, most, len(nodes))._replace(is_decided=False)
            if allocated is not None:
                return Placement(node.name, allocated, nodes=len(nodes))
            missed = missed or site
        if examined > EXAMINED_MAX:
            is_decided = False
            break
    result = _missing(missed or best, most, len(nodes))._replace(is_decided=is_decided)
    return result if missed is None else _diagnosed(result, missed)


def _site(cluster: ClusterDevices, claims: Sequence[PendingClaim], node: LabelledNode) -> _Site:
    visible_pools = list(cluster.visible_from(node))
    is_whole = all(one.view.is_complete and one.view.is_valid for one in visible_pools if one.view.on_node)
    wishes = sum(len(request.wishes) for one in claims for request in one.requested.requests)
    examined = wishes * sum(len(one.published) for one in visible_pools)
    demands = tuple(
        ClaimDemand(
            one.claim,
            [
                [_option_of(cluster, visible_pools, request.name, wish, is_whole) for wish in request.wishes]
                for request in one.requested.requests
            ],
            one.requested.constraints,
        )
        for one in claims
    )
    return _Site(node, demands, {one.pool: one.left for one in visible_pools}, examined)


def _option_of(
    cluster: ClusterDevices, visible_pools: Iterable[VisiblePool], request: str, wish: Wish, is_whole: bool
) -> Option:
    """The devices that a wish can choose from; a wish for all devices has none while a pool is incomplete."""
    every = [one for visible in visible_pools for one in cluster.candidates(visible, wish) if one.matches]
    if wish.mode != "All":
        return Option(request, wish.name, wish, wish.count, [one for one in every if one.is_free])
    meant = [one for one in every if not any(constraint.kind in NOT_OF_ALL for constraint in one.constraints)]
    return Option(request, wish.name, wish, len(meant), meant if is_whole else [])


def _available_count(option: Option) -> int:
    """How many devices are free; a shareable one counts as often as the option requests."""
    free = [one for one in option.candidates if one.is_free]
    is_enough = any(one.device.is_shareable for one in free)
    return max(len(free), option.number) if is_enough else len(free)


def _closeness(site: _Site) -> float:
    """The mean share of each request that is available; 1 where nothing is missing."""
    found = [
        max((min(one.available / one.requested, 1.0) if one.requested else 0.0 for one in options), default=0.0)
        for options in site.supplies
    ]
    return sum(found) / len(found) if found else 1.0


def _note_most(most: dict[tuple[str, str], tuple[Supply, str]], site: _Site) -> None:
    for options in site.supplies:
        for one in options:
            before = most.get((one.claim, one.label))
            if before is None or one.available > before[0].available:
                most[one.claim, one.label] = (one, site.node.name)


def _missing(site: _Site | None, most: dict[tuple[str, str], tuple[Supply, str]], nodes: int) -> Placement:
    if site is None:
        return Placement(None, None, nodes=nodes)
    best = tuple(one for options in site.supplies for one in options)
    return Placement(site.node.name, None, best, tuple(most.values()), nodes=nodes)


def _diagnosed(result: Placement, site: _Site) -> Placement:
    """Add why a node that has enough for each request cannot satisfy all of them."""
    every = [
        (claim, number, Disagreement(demand.claim, constraint, _values(demand, constraint)))
        for claim, demand in enumerate(site.demands)
        for number, constraint in enumerate(demand.constraints)
    ]
    try:
        if site.search(Steps(), [one._replace(constraints=()) for one in site.demands]) is None:
            return result._replace(is_scarce=True)
        decisive = tuple(one for claim, number, one in every if _fits_without(site, claim, number))
    except OutOfStepsError:
        return result._replace(is_decided=False)
    return result._replace(disagreements=decisive or tuple(one for _, _, one in every))


def _fits_without(site: _Site, claim: int, number: int) -> bool:
    """Whether all requests fit without one of the constraints."""
    demands = list(site.demands)
    kept = [one for other, one in enumerate(demands[claim].constraints) if other != number]
    demands[claim] = demands[claim]._replace(constraints=kept)
    return site.search(Steps(), demands) is not None


def _values(demand: ClaimDemand, constraint: Constraint) -> tuple[tuple[str, tuple[tuple[object, int], ...]], ...]:
    """How many free devices of each option that the constraint concerns have which value."""
    name = constraint.match_attribute or constraint.distinct_attribute or ""
    counted = (
        (option.label, Counter(_bare_value(one, name) for one in option.candidates if one.is_free))
        for options in demand.requests
        for option in options
        if concerns(constraint, option)
    )
    return tuple((label, tuple(sorted(counts.items(), key=lambda item: str(item[0])))) for label, counts in counted)


def _bare_value(candidate: Candidate, name: str) -> object:
    value = attribute_of(candidate, name)
    return None if value is None else value[1]
