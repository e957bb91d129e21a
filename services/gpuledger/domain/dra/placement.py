"""Whether claims can have all that they ask for on one node, and on which; else what comes closest. Pure.

Every node is tried in turn, within bounds. Where one has enough for each request but not for all of them together, the
search is made again without constraints, which tells what is in the way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuledger.domain.dra.candidates import Field, Sight
from gpuledger.domain.dra.constraints import Mismatch
from gpuledger.domain.dra.matching import Demand, Given, Option, OutOfStepsError, Search, Steps, attribute_of, concerns
from gpuledger.domain.dra.objects import Node, PoolId
from gpuledger.domain.dra.verdicts import Obstacle
from gpuledger.events.claim import Asked, Constraint, Wish

LOOKED_AT_MAX = 500_000
"""Devices that are looked at from nodes, each counted for every request and every node."""

NOT_OF_ALL = frozenset({Mismatch.UNREACHABLE, Obstacle.CAPACITY, Obstacle.OUTDATED})
"""Who asks for all devices does not mean those."""

Allows = Callable[[Node], bool]


class Pending(NamedTuple):
    """A claim that asks and holds nothing; `claim` is `namespace/name`."""

    claim: str
    asked: Asked


class Supply(NamedTuple):
    """How many devices a node has for an option, and how many it would need."""

    claim: str
    label: str
    asked: int
    had: int


class Disagreement(NamedTuple):
    """A constraint that cannot be met; `values` are, by request, how many devices have which value (None: none)."""

    claim: str
    constraint: Constraint
    values: tuple[tuple[str, tuple[tuple[object, int], ...]], ...]


class Together(NamedTuple):
    """Whether all requests can be had on one node. `best` is what the node has that comes closest.

    `given` is there where they can. Else `disagreements` are the constraints without which they could, and `is_scarce`
    says that what one request takes is missing for another. Where the bounds were reached, `is_decided` is false.
    """

    node: str | None
    given: tuple[Given, ...] | None
    best: tuple[Supply, ...] = ()
    most: tuple[tuple[Supply, str], ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    is_scarce: bool = False
    is_decided: bool = True
    nodes: int = 0


class _Place(NamedTuple):
    """A node with what it has for the claims."""

    node: Node
    demands: tuple[Demand, ...]
    left: dict[PoolId, dict[str, dict[str, int]]]
    looked_at: int

    def search(self, steps: Steps, demands: Sequence[Demand] | None = None) -> tuple[Given, ...] | None:
        """What all requests get together."""
        return Search(self.demands if demands is None else demands, self.left, steps).found()

    @property
    def supplies(self) -> list[list[Supply]]:
        """What is there, for every option of every request."""
        return [
            [Supply(demand.claim, one.label, one.number, _had(one)) for one in options]
            for demand in self.demands
            for options in demand.requests
        ]


def nodes_of(field: Field) -> list[Node]:
    """The nodes that claims may be used on; a nameless one where no node is known at all."""
    named = {row.node for row in field.state.slice.rows.values() if row.node}
    names = sorted(named | field.nodes.keys())
    return [field.state.node(name) for name in names] or [Node("", {})]


def together(field: Field, claims: Sequence[Pending], nodes: Sequence[Node]) -> Together:
    """Where the claims can have all that they ask for."""
    steps, looked_at, most = Steps(), 0, dict[tuple[str, str], tuple[Supply, str]]()
    best: _Place | None = None
    missed: _Place | None = None
    is_decided = True
    for node in nodes:
        place = _place(field, claims, node)
        looked_at += place.looked_at
        _note_most(most, place)
        best = place if best is None or _closeness(place) > _closeness(best) else best
        if _closeness(place) == 1:
            try:
                given = place.search(steps)
            except OutOfStepsError:
                return _missing(best, most, len(nodes))._replace(is_decided=False)
            if given is not None:
                return Together(node.name, given, nodes=len(nodes))
            missed = missed or place
        if looked_at > LOOKED_AT_MAX:
            is_decided = False
            break
    told = _missing(missed or best, most, len(nodes))._replace(is_decided=is_decided)
    return told if missed is None else _diagnosed(told, missed)


def _place(field: Field, claims: Sequence[Pending], node: Node) -> _Place:
    sights = list(field.sights_from(node))
    is_whole = all(one.view.is_complete and one.view.is_valid for one in sights if one.view.on_node)
    wishes = sum(len(request.wishes) for one in claims for request in one.asked.requests)
    looked_at = wishes * sum(len(one.offers) for one in sights)
    demands = tuple(
        Demand(
            one.claim,
            [
                [_offered(field, sights, request.name, wish, is_whole) for wish in request.wishes]
                for request in one.asked.requests
            ],
            one.asked.constraints,
        )
        for one in claims
    )
    return _Place(node, demands, {one.pool: one.left for one in sights}, looked_at)


def _offered(field: Field, sights: Iterable[Sight], request: str, wish: Wish, is_whole: bool) -> Option:
    """The devices that a wish can choose from; one for all devices has none while a pool is in the making."""
    every = [one for sight in sights for one in field.candidates(sight, wish) if one.matches]
    if wish.mode != "All":
        return Option(request, wish.name, wish, wish.count, [one for one in every if one.is_free])
    meant = [one for one in every if not any(hindrance.kind in NOT_OF_ALL for hindrance in one.hindrances)]
    return Option(request, wish.name, wish, len(meant), meant if is_whole else [])


def _had(option: Option) -> int:
    """How many devices there are; one that can be shared counts as many as are asked."""
    free = [one for one in option.candidates if one.is_free]
    is_enough = any(one.device.is_shareable for one in free)
    return max(len(free), option.number) if is_enough else len(free)


def _closeness(place: _Place) -> float:
    """How much of what is asked is there, each request for itself; 1 where nothing is missing."""
    found = [
        max((min(one.had / one.asked, 1.0) if one.asked else 0.0 for one in options), default=0.0)
        for options in place.supplies
    ]
    return sum(found) / len(found) if found else 1.0


def _note_most(most: dict[tuple[str, str], tuple[Supply, str]], place: _Place) -> None:
    for options in place.supplies:
        for one in options:
            known = most.get((one.claim, one.label))
            if known is None or one.had > known[0].had:
                most[one.claim, one.label] = (one, place.node.name)


def _missing(place: _Place | None, most: dict[tuple[str, str], tuple[Supply, str]], nodes: int) -> Together:
    if place is None:
        return Together(None, None, nodes=nodes)
    best = tuple(one for options in place.supplies for one in options)
    return Together(place.node.name, None, best, tuple(most.values()), nodes=nodes)


def _diagnosed(told: Together, place: _Place) -> Together:
    """Why a node that has enough for each request has not enough for all."""
    try:
        if place.search(Steps(), [one._replace(constraints=()) for one in place.demands]) is None:
            return told._replace(is_scarce=True)
        found = tuple(
            Disagreement(place.demands[claim].claim, constraint, _values(place.demands[claim], constraint))
            for claim, number, constraint in _constraints(place.demands)
            if _without(place, claim, number)
        )
    except OutOfStepsError:
        return told._replace(is_decided=False)
    every = tuple(
        Disagreement(place.demands[claim].claim, constraint, _values(place.demands[claim], constraint))
        for claim, _, constraint in _constraints(place.demands)
    )
    return told._replace(disagreements=found or every)


def _constraints(demands: Sequence[Demand]) -> Iterator[tuple[int, int, Constraint]]:
    for claim, demand in enumerate(demands):
        for number, constraint in enumerate(demand.constraints):
            yield claim, number, constraint


def _without(place: _Place, claim: int, number: int) -> bool:
    """Whether all can be had but for one constraint."""
    demands = list(place.demands)
    kept = [one for other, one in enumerate(demands[claim].constraints) if other != number]
    demands[claim] = demands[claim]._replace(constraints=kept)
    return place.search(Steps(), demands) is not None


def _values(demand: Demand, constraint: Constraint) -> tuple[tuple[str, tuple[tuple[object, int], ...]], ...]:
    name = constraint.match_attribute or constraint.distinct_attribute or ""
    found = []
    for options in demand.requests:
        for option in options:
            if concerns(constraint, option):
                counts: dict[object, int] = {}
                for one in option.candidates:
                    if one.is_free:
                        value = attribute_of(one, name)
                        key = None if value is None else value[1]
                        counts[key] = counts.get(key, 0) + 1
                found.append((option.label, tuple(sorted(counts.items(), key=lambda item: str(item[0])))))
    return tuple(found)
