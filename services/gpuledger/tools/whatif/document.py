"""What would be, as a document: what `gpuledger what-if` shows and `-o json` writes. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuledger.domain.pools.pools import PoolCondition
from gpuledger.domain.pools.spec import read_spec
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.pools.status import capacity
from gpuledger.tools.explain.pool_outsiders import Outsider, outsiders
from gpuledger.tools.whatif.agents import ROUNDS_MAX, Answered
from gpuledger.tools.whatif.differences import (
    DeviceDifference,
    Held,
    Offer,
    PoolDifference,
    device_differences,
    offer_of,
    pool_differences,
)
from gpuledger.tools.whatif.world import SupposedPools

NOTHING: Final = "nothing would differ"
NOT_IN_FORCE: Final = "Nothing is decided while the module is disabled or Node Feature Discovery is missing."

Document = dict[str, Any]
Used = Mapping[str, int]
"""By pool how many of its units pods on nodes have asked for."""


def worlds_document(recorded: PoolFacts, supposed: SupposedPools, pool: str, used: Used) -> Document:
    """Where the two worlds differ, and the answer in one line."""
    devices = list(device_differences(recorded, supposed))
    pools = list(pool_differences(recorded, supposed))
    return {
        "devices": [_device(one) for one in devices],
        "pools": [_pool(one, used.get(one.pool, 0)) for one in pools],
        "keptOut": [_outsider(one) for one in _kept_out(recorded, supposed.state, pool)],
        "answer": answer_words(devices, pools, pool),
    }


def notes(recorded: PoolFacts, supposed: SupposedPools, answered: Answered, pool: str, used: Used) -> Iterator[str]:
    """What has to be known to read the answer."""
    row, state = recorded.pool.get(pool), supposed.state
    if row is None:
        yield "There is no such pool; it is assumed to be made."
    elif row.deleting:
        yield "The pool is being deleted; no definition ends that."
    if supposed.replaced:
        yield f"Definitions of the pool that were recorded since ({supposed.replaced}) count as this one."
    if not state.is_in_force():
        yield NOT_IN_FORCE
    if answered.devices:
        yield f"Agents are assumed to do what would be asked of them for {_counted(len(answered.devices), 'device')}."
    if answered.indivisible:
        cards = ", ".join(sorted(answered.indivisible)[:3])
        yield f"Cards that cannot be divided so, by all that is known of them: {len(answered.indivisible)}, as {cards}."
    if not answered.is_settled:
        yield f"After {ROUNDS_MAX} rounds of agents' answers devices would still change; this is not the end."
    offer = offer_of(state, pool)
    if offer is not None and offer.total is not None and used.get(pool, 0) > offer.total:
        yield f"Pods on nodes have asked for {used[pool]} units, which is more than there would be."


def answer_words(devices: list[DeviceDifference], pools: list[PoolDifference], pool: str) -> str:
    """The answer in one line: of the pool first."""
    told = list(_device_words(devices, pool))
    own = next((one for one in pools if one.pool == pool), None)
    if own is not None:
        told += [_total_words(own.was, own.would)]
    if others := sum(one.pool != pool for one in pools):
        told.append(f"{_counted(others, 'other pool')} would differ")
    return "; ".join(told) or NOTHING


def _device_words(devices: list[DeviceDifference], pool: str) -> Iterator[str]:
    joins = sum(one.would.pool == pool != one.was.pool for one in devices)
    leaves = sum(one.was.pool == pool != one.would.pool for one in devices)
    stays = sum(one.was.pool == pool == one.would.pool for one in devices)
    others = len(devices) - joins - leaves - stays
    moves = [f"{_counted(joins, 'device')} would join"] if joins else []
    moves += [f"{leaves} would leave" if joins else f"{_counted(leaves, 'device')} would leave"] if leaves else []
    if moves:
        yield ", ".join(moves)
    if stays:
        yield f"{_counted(stays, 'device')} of it would be in another phase"
    if others:
        yield f"{_counted(others, 'device')} would change elsewhere"


def _total_words(was: Offer | None, would: Offer | None) -> str:
    before, after = _units(was), _units(would)
    return f"conditions would differ, total stays {after}" if before == after else f"total {before} → {after}"


def _units(offer: Offer | None) -> str:
    if offer is None:
        return "none"
    return "not known" if offer.total is None else str(offer.total)


def _device(one: DeviceDifference) -> Document:
    return {
        "name": one.device,
        "node": one.node,
        "product": one.product,
        "was": _held(one.was),
        "would": _held(one.would),
        "reasons": [why._asdict() for why in one.why],
    }


def _held(held: Held) -> Document:
    return {"pool": held.pool, "phase": held.phase}


def _pool(one: PoolDifference, used: int) -> Document:
    return {"pool": one.pool, "was": _offer(one.was, used), "would": _offer(one.would, used)}


def _offer(offer: Offer | None, used: int) -> Document | None:
    if offer is None:
        return None
    return {
        "capacity": capacity(offer.total, used),
        "conditions": [_condition(one) for one in sorted(offer.conditions, key=lambda one: one.type)],
    }


def _condition(one: PoolCondition) -> Document:
    return {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}


def _kept_out(recorded: PoolFacts, supposed: PoolFacts, pool: str) -> Iterator[Outsider]:
    """Devices that the pool would mean and not have, and that it does not mean now."""
    was, would = recorded.pool.get(pool), supposed.pool.get(pool)
    if would is None or (was is not None and _meant(was.said) == _meant(would.said)):
        return
    known = set() if was is None else {one.device for one in outsiders(recorded, was)}
    for one in outsiders(supposed, would):
        held = recorded.assignment.get(one.device)
        if one.device not in known and (held is None or held.pool != pool):
            yield one


def _meant(said: str) -> tuple[object, ...]:
    """What of a pool says which devices it means."""
    spec = read_spec(said).definition
    return spec.unit, spec.node_selector, spec.include, spec.exclude


def _outsider(one: Outsider) -> Document:
    return {
        "name": one.device,
        "node": one.node,
        "state": one.state,
        "reasons": [obstacle._asdict() for obstacle in one.obstacles],
    }


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
