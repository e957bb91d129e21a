"""The document that `gpuledger what-if` shows and `-o json` writes. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuledger.domain.pools.pools import Pool, PoolCondition
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.pools.status import capacity
from gpuledger.tools.explain.excluded_devices import ExcludedDevice, excluded_devices
from gpuledger.tools.whatif.agents import ROUNDS_MAX, AssumedReports
from gpuledger.tools.whatif.differences import (
    DeviceDifference,
    DeviceHolding,
    PoolDifference,
    PoolOffer,
    device_differences,
    offer_of,
    pool_differences,
)
from gpuledger.tools.whatif.hypothetical import HypotheticalPools

NOTHING: Final = "nothing would differ"
NOT_IN_FORCE: Final = "gpuledger decides nothing while the module is disabled or Node Feature Discovery is missing."

Document = dict[str, Any]
Used = Mapping[str, int]
"""How many units of each pool pods on nodes request."""


def differences_document(recorded: PoolFacts, hypothetical: HypotheticalPools, pool: str, used: Used) -> Document:
    """The differences, and a summary of them in one line."""
    devices = list(device_differences(recorded, hypothetical))
    pools = list(pool_differences(recorded, hypothetical))
    return {
        "devices": [_device(one) for one in devices],
        "pools": [_pool(one, used.get(one.pool, 0)) for one in pools],
        "keptOut": [_excluded_device(one) for one in _kept_out(recorded, hypothetical.state, pool)],
        "answer": _summary(devices, pools, pool),
    }


def notes(
    recorded: PoolFacts, hypothetical: HypotheticalPools, reports: AssumedReports, pool: str, used: Used
) -> Iterator[str]:
    """What a reader of the document needs to know."""
    row, state = recorded.pool.get(pool), hypothetical.state
    if row is None:
        yield "There is no such pool; the answer assumes that it is created."
    elif row.deleting:
        yield "The pool is being deleted; no definition stops that."
    if hypothetical.replaced:
        yield f"This definition replaces those that were recorded since then ({hypothetical.replaced})."
    if not state.is_in_force():
        yield NOT_IN_FORCE
    if reports.devices:
        yield f"Agents are assumed to set up or release {_counted(len(reports.devices), 'device')} as required."
    if reports.indivisible:
        cards = ", ".join(sorted(reports.indivisible)[:3])
        yield f"As far as is recorded, cards cannot be divided like this: {len(reports.indivisible)}, such as {cards}."
    if not reports.is_settled:
        yield f"After {ROUNDS_MAX} rounds of agents' reports devices would still change; this is not the final state."
    offer = offer_of(state, pool)
    if offer is not None and offer.total is not None and used.get(pool, 0) > offer.total:
        yield f"Pods on nodes request {used[pool]} units, more than there would be."


def _summary(devices: list[DeviceDifference], pools: list[PoolDifference], pool: str) -> str:
    """The summary in one line; the pool itself comes first."""
    parts = list(_device_words(devices, pool))
    own = next((one for one in pools if one.pool == pool), None)
    if own is not None:
        parts += [_total_words(own.was, own.would)]
    if others := sum(one.pool != pool for one in pools):
        parts.append(f"{_counted(others, 'other pool')} would differ")
    return "; ".join(parts) or NOTHING


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


def _total_words(was: PoolOffer | None, would: PoolOffer | None) -> str:
    before, after = _units(was), _units(would)
    return f"conditions would differ, total stays {after}" if before == after else f"total {before} → {after}"


def _units(offer: PoolOffer | None) -> str:
    if offer is None:
        return "none"
    return "unknown" if offer.total is None else str(offer.total)


def _device(one: DeviceDifference) -> Document:
    return {
        "name": one.device,
        "node": one.node,
        "product": one.product,
        "was": _held(one.was),
        "would": _held(one.would),
        "reasons": [why._asdict() for why in one.why],
    }


def _held(held: DeviceHolding) -> Document:
    return {"pool": held.pool, "phase": held.phase}


def _pool(one: PoolDifference, used: int) -> Document:
    return {"pool": one.pool, "was": _offer(one.was, used), "would": _offer(one.would, used)}


def _offer(offer: PoolOffer | None, used: int) -> Document | None:
    if offer is None:
        return None
    return {
        "capacity": capacity(offer.total, used),
        "conditions": [_condition(one) for one in sorted(offer.conditions, key=lambda one: one.type)],
    }


def _condition(one: PoolCondition) -> Document:
    return {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}


def _kept_out(recorded: PoolFacts, hypothetical: PoolFacts, pool: str) -> Iterator[ExcludedDevice]:
    """Devices that the pool would select and not have, and that it does not select now."""
    was, would = recorded.pool.get(pool), hypothetical.pool.get(pool)
    if would is None or (was is not None and _selection(was) == _selection(would)):
        return
    before = set() if was is None else {one.device for one in excluded_devices(recorded, was)}
    for one in excluded_devices(hypothetical, would):
        held = recorded.assignment.get(one.device)
        if one.device not in before and (held is None or held.pool != pool):
            yield one


def _selection(pool: Pool) -> tuple[object, ...]:
    """The parts of a definition that select devices."""
    definition = pool.spec.definition
    return definition.unit, definition.node_selector, definition.include, definition.exclude


def _excluded_device(one: ExcludedDevice) -> Document:
    return {
        "name": one.device,
        "node": one.node,
        "state": one.state,
        "reasons": [obstacle._asdict() for obstacle in one.obstacles],
    }


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
