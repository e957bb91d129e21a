"""Translates the payloads of slices, claims and taint rules into the objects of `objects.py`. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping

from gpuledger.domain.dra.objects import (
    Capacity,
    ClaimId,
    Counters,
    DeviceTaint,
    DraDevice,
    Holding,
    NodeExpression,
    Policy,
    PoolId,
    Reach,
    Slice,
    TaintRule,
)
from gpuledger.domain.quantities import Quantity, parse_quantity
from gpuledger.events.claim import ClaimAllocated
from gpuledger.events.reach import NodeReach
from gpuledger.events.slice import DeviceCapacity, RequestPolicy, SliceDevice, SlicePublished, Taint, TaintRuleSet


def slice_of(name: str, payload: SlicePublished) -> Slice:
    """A slice as it was published; one that defines counters offers no devices, whatever it lists."""
    times = Counter(one.name for one in payload.counter_sets)
    return Slice(
        name,
        payload.uid,
        PoolId(payload.driver, payload.pool),
        payload.pool_generation,
        payload.slice_count,
        None if payload.reach is None else reach_of(payload.reach),
        () if payload.counter_sets else tuple(_device(one) for one in payload.devices),
        {one.name: amounts(one.counters) for one in payload.counter_sets},
        tuple(name for name, count in times.items() if count > 1),
        payload.generation,
    )


def holdings_of(claim: ClaimId, payload: ClaimAllocated) -> Iterator[Holding]:
    """The holdings of an allocated claim; equal results are one holding of both amounts."""
    found: dict[tuple[str, PoolId, str, str | None], Holding] = {}
    for one in payload.results:
        pool = PoolId(one.driver, one.pool)
        holding = Holding(claim, one.request, pool, one.device, one.share, amounts(one.consumed), one.admin_access)
        key = (one.request, pool, one.device, one.share)
        found[key] = _combined(found[key], holding) if key in found else holding
    yield from found.values()


def rule_of(name: str, payload: TaintRuleSet) -> TaintRule:
    """A taint rule."""
    return TaintRule(name, _taint(payload.taint), payload.driver, payload.pool, payload.device)


def reach_of(payload: NodeReach) -> Reach:
    """Which nodes are meant."""
    terms = tuple(
        tuple(NodeExpression(one.key, one.operator, one.values, one.is_field) for one in term) for term in payload.terms
    )
    return Reach(payload.node, payload.all_nodes, terms)


def amounts(texts: Mapping[str, str]) -> dict[str, Quantity]:
    """Quantities by name."""
    return {name: parse_quantity(text) for name, text in texts.items()}


def _device(payload: SliceDevice) -> DraDevice:
    return DraDevice(
        payload.name,
        payload.shareable,
        {name: _capacity(one) for name, one in payload.capacity.items()},
        _counters(payload.consumes),
        tuple(_taint(one) for one in payload.taints),
        None if payload.reach is None else reach_of(payload.reach),
    )


def _counters(payload: Mapping[str, Mapping[str, str]]) -> Counters:
    return {name: amounts(counters) for name, counters in payload.items()}


def _capacity(payload: DeviceCapacity) -> Capacity:
    return Capacity(parse_quantity(payload.value), _policy(payload.policy) if payload.policy else None)


def _policy(payload: RequestPolicy) -> Policy:
    return Policy(
        _nanos(payload.default), tuple(sorted(map(_sure_nanos, payload.values))),
        _nanos(payload.min), _nanos(payload.max), _step(payload.step),
    )  # fmt: skip


def _nanos(text: str | None) -> int | None:
    return None if text is None else _sure_nanos(text)


def _step(text: str | None) -> int | None:
    """A step that is none, which the API server refuses, counts as not given."""
    nanos = _nanos(text)
    return nanos if nanos is not None and nanos > 0 else None


def _sure_nanos(text: str) -> int:
    return parse_quantity(text).nanos


def _taint(payload: Taint) -> DeviceTaint:
    return DeviceTaint(payload.key, payload.value, payload.effect)


def _combined(one: Holding, other: Holding) -> Holding:
    """Both: administrators' access takes nothing from others, and does not hide what does."""
    if other.has_admin_access:
        return one
    if one.has_admin_access:
        return other
    consumed = dict(one.consumed)
    for name, amount in other.consumed.items():
        consumed[name] = _sum(consumed[name], amount) if name in consumed else amount
    return one._replace(consumed=consumed)


def _sum(one: Quantity, other: Quantity) -> Quantity:
    """Both, in the form that is read from the sum's text: 1Ki and 1 are 1025, of which nobody sees what it was."""
    return parse_quantity(str(one.as_much(one.nanos + other.nanos)))
