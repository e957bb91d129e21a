"""What recorded facts mean: slices, holdings and taint rules from the payloads of events. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping

from gpuledger.domain.dra.objects import (
    Capacity,
    ClaimId,
    Counters,
    Device,
    Holding,
    Policy,
    PoolId,
    Reach,
    Requirement,
    Slice,
    Taint,
    TaintRule,
)
from gpuledger.domain.quantities import Quantity, parse_quantity
from gpuledger.events.claim import ClaimAllocated
from gpuledger.events.reach import NodeReach
from gpuledger.events.slice import DeviceCapacity, RequestPolicy, SliceDevice, SlicePublished, TaintRuleSet
from gpuledger.events.slice import Taint as TaintGiven


def slice_of(name: str, said: SlicePublished) -> Slice:
    """A slice as it was published; one that defines counters offers no devices, whatever it lists."""
    times = Counter(one.name for one in said.counter_sets)
    return Slice(
        name,
        said.uid,
        PoolId(said.driver, said.pool),
        said.pool_generation,
        said.slice_count,
        None if said.reach is None else reach_of(said.reach),
        () if said.counter_sets else tuple(_device(one) for one in said.devices),
        {one.name: amounts(one.counters) for one in said.counter_sets},
        tuple(name for name, count in times.items() if count > 1),
        said.generation,
    )


def holdings_of(claim: ClaimId, said: ClaimAllocated) -> Iterator[Holding]:
    """What a claim was given; what it was given twice, by the same words, is one holding of both amounts."""
    found: dict[tuple[str, PoolId, str, str | None], Holding] = {}
    for one in said.results:
        pool = PoolId(one.driver, one.pool)
        given = Holding(claim, one.request, pool, one.device, one.share, amounts(one.consumed), one.admin_access)
        place = (one.request, pool, one.device, one.share)
        found[place] = _together(found[place], given) if place in found else given
    yield from found.values()


def rule_of(name: str, said: TaintRuleSet) -> TaintRule:
    """A taint rule."""
    return TaintRule(name, _taint(said.taint), said.driver, said.pool, said.device)


def reach_of(said: NodeReach) -> Reach:
    """Which nodes are meant."""
    terms = tuple(
        tuple(Requirement(one.key, one.operator, one.values, one.is_field) for one in term) for term in said.terms
    )
    return Reach(said.node, said.all_nodes, terms)


def amounts(texts: Mapping[str, str]) -> dict[str, Quantity]:
    """Quantities by name."""
    return {name: parse_quantity(text) for name, text in texts.items()}


def _device(said: SliceDevice) -> Device:
    return Device(
        said.name,
        said.shareable,
        {name: _capacity(one) for name, one in said.capacity.items()},
        _counters(said.consumes),
        tuple(_taint(one) for one in said.taints),
        None if said.reach is None else reach_of(said.reach),
    )


def _counters(said: Mapping[str, Mapping[str, str]]) -> Counters:
    return {name: amounts(counters) for name, counters in said.items()}


def _capacity(said: DeviceCapacity) -> Capacity:
    return Capacity(parse_quantity(said.value), _policy(said.policy) if said.policy else None)


def _policy(said: RequestPolicy) -> Policy:
    return Policy(
        _nanos(said.default), tuple(sorted(map(_sure_nanos, said.values))),
        _nanos(said.min), _nanos(said.max), _step(said.step),
    )  # fmt: skip


def _nanos(text: str | None) -> int | None:
    return None if text is None else _sure_nanos(text)


def _step(text: str | None) -> int | None:
    """A step that is none, which the API server refuses, counts as not given."""
    nanos = _nanos(text)
    return nanos if nanos is not None and nanos > 0 else None


def _sure_nanos(text: str) -> int:
    return parse_quantity(text).nanos


def _taint(said: TaintGiven) -> Taint:
    return Taint(said.key, said.value, said.effect)


def _together(one: Holding, other: Holding) -> Holding:
    """Both: administrators' access takes nothing from others, and does not hide what does."""
    if other.has_admin_access:
        return one
    if one.has_admin_access:
        return other
    consumed = dict(one.consumed)
    for name, amount in other.consumed.items():
        consumed[name] = consumed[name].as_much(consumed[name].nanos + amount.nanos) if name in consumed else amount
    return one._replace(consumed=consumed)
