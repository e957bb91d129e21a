"""Decides whether a pool takes devices, how many units it offers, and its conditions. Pure."""

from gpuledger.api.conditions import FALSE, TRUE, PoolConditionType
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.pool_spec import MAINTENANCE_ENABLED
from gpuledger.api.reasons import PoolReason
from gpuledger.domain.pools.pools import Pool
from gpuledger.domain.pools.rows import DRIFTED, REFUSED, DeviceProblem, PoolTally
from gpuledger.domain.pools.spec import units
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.pools.validation import PoolProblem, problem_of, unsupported
from gpuledger.events.node import Condition
from gpuledger.events.payload import truncated
from gpuledger.events.pool import PoolChanged, PoolDefined


def pool_change(state: PoolFacts, row: Pool) -> PoolChanged | None:
    """The capacity and conditions of the pool; None if they were decided already."""
    definition = row.spec.definition
    total, misconfigured = _total(state, row.subject, definition), _misconfigured(state, row)
    conditions = (
        _capacity_low(total),
        _configured(state, row, misconfigured),
        _maintenance(state, row.subject, definition),
        misconfigured,
        _supported(definition),
    )
    change = PoolChanged(total=total, observed_generation=row.generation, conditions=conditions)
    return None if _is_decided(state, row.subject, change) else change


def is_empty(state: PoolFacts, pool: str) -> bool:
    """Whether the pool holds no device."""
    return state.tally.get(pool) is None


def closed(state: PoolFacts, row: Pool) -> PoolProblem | None:
    """Why the pool takes no more devices; None if it does.

    Drift closes a pool without touching the devices that wait for it, so the reason must not depend on what drifted.
    """
    problem = _problem(state, row)
    if problem is not None:
        return problem
    maintenance = _maintenance(state, row.subject, row.spec.definition)
    if maintenance.status == TRUE:
        return PoolProblem(PoolReason(maintenance.reason), "The pool is under maintenance.")
    return None


def _is_decided(state: PoolFacts, pool: str, change: PoolChanged) -> bool:
    row = state.total.get(pool)
    if row is None or (row.total, row.observed_generation) != (change.total, change.observed_generation):
        return False
    current = (state.condition.get((pool, one.type)) for one in change.conditions)
    return all(
        row is not None and row[2:5] == (one.status, one.reason, one.message)
        for row, one in zip(current, change.conditions, strict=True)
    )


def _total(state: PoolFacts, pool: str, definition: PoolDefined) -> int | None:
    if unsupported(definition) is not None:
        return None
    tally = state.tally.get(pool) or PoolTally(pool, 0, 0, 0)
    return units(definition, cards=tally.cards, partitions=tally.partitions, cap=_cap(state))


def _cap(state: PoolFacts) -> int:
    return state.settings_in_force().max_slices_per_device


def _problem(state: PoolFacts, row: Pool) -> PoolProblem | None:
    """The worst problem of the pool itself."""
    owner = state.owner(row.name)
    if owner is not None and owner.subject != row.subject:
        text = f"{owner.subject} had the name {row.name} before; pools' names are unique in the cluster."
        return PoolProblem(PoolReason.NAME_COLLISION, text)
    if row.deleting:
        return PoolProblem(PoolReason.DELETING, "The pool is being deleted.")
    return unsupported(row.spec.definition) or problem_of(row.subject, row.payload, _cap(state))


def _supported(definition: PoolDefined) -> Condition:
    problem = unsupported(definition) or PoolProblem(PoolReason.SUPPORTED, "")
    return _condition(PoolConditionType.SUPPORTED, problem.reason == PoolReason.SUPPORTED, *problem)


def _configured(state: PoolFacts, row: Pool, misconfigured: Condition) -> Condition:
    if (problem := _problem(state, row)) is not None:
        return _condition(PoolConditionType.CONFIGURED, False, *problem)
    if misconfigured.status == TRUE:
        return _condition(PoolConditionType.CONFIGURED, False, misconfigured.reason, misconfigured.message)
    return _condition(PoolConditionType.CONFIGURED, True, PoolReason.CONFIGURED)


def _misconfigured(state: PoolFacts, row: Pool) -> Condition:
    if (problem := problem_of(row.subject, row.payload, _cap(state))) is not None:
        return _condition(PoolConditionType.MISCONFIGURED, True, *problem)
    if refused := state.problems(row.subject, REFUSED):
        text = f"An agent refuses {_devices(refused)}: {refused[0].message or refused[0].reason}"
        return _condition(PoolConditionType.MISCONFIGURED, True, refused[0].reason, text)
    return _condition(PoolConditionType.MISCONFIGURED, False, PoolReason.NO_PROBLEMS)


def _capacity_low(total: int | None) -> Condition:
    if total:
        return _condition(PoolConditionType.CAPACITY_LOW, False, PoolReason.HAS_CAPACITY)
    reason = PoolReason.CAPACITY_UNKNOWN if total is None else PoolReason.NO_CAPACITY
    return _condition(PoolConditionType.CAPACITY_LOW, True, reason)


def _maintenance(state: PoolFacts, pool: str, definition: PoolDefined) -> Condition:
    if definition.maintenance == MAINTENANCE_ENABLED:
        return _condition(PoolConditionType.MAINTENANCE, True, PoolReason.BY_OPERATOR)
    if drifted := state.problems(pool, DRIFTED):
        name = PoolRef.parse(pool).name
        text = f"{_devices(drifted)}: {drifted[0].message} Put it right, and confirm the maintenance of {name}."
        return _condition(PoolConditionType.MAINTENANCE, True, PoolReason.DRIFT, text)
    return _condition(PoolConditionType.MAINTENANCE, False, PoolReason.IN_SERVICE)


def _devices(problems: list[DeviceProblem]) -> str:
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{problems[0].device}{more}"


def _condition(kind: PoolConditionType, holds: bool, reason: str, message: str = "") -> Condition:
    return Condition(type=kind, status=TRUE if holds else FALSE, reason=reason, message=truncated(message))
