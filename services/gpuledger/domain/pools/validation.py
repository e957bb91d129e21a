"""Whether a pool's spec makes sense: the rules that the decider and admission share. Pure.

The decider puts what it finds into the pool's conditions; admission refuses it before it is stored, beside what the
form of a manifest alone has wrong.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple, TypeGuard

from gpuledger.api.mig_profile import MigProfile
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.pool_spec import BACKEND_DEVICE_PLUGIN, PROVIDER_NVIDIA, SELECTOR_OPERATORS, UNIT_MIG
from gpuledger.api.reasons import PoolReason
from gpuledger.domain.pools.spec import SPECS_CACHED_MAX, read_spec
from gpuledger.events.pool import PoolDefined
from gpuledger.events.settings import SLICES_PER_UNIT_MAX

RESOURCE_NAME_MAX: Final = 63
"""How long the part of an extended resource's name after the slash may be."""

A_PROFILE: Final = "a MIG profile, such as 1g.10gb or 1g.10gb+me"

_RESOURCE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?").fullmatch


class PoolProblem(NamedTuple):
    """What is wrong with a pool; the message names the field, and says what to do about it."""

    reason: PoolReason
    message: str


def unsupported(definition: PoolDefined) -> PoolProblem | None:
    """Why gpuledger does not serve such a pool."""
    if definition.provider != PROVIDER_NVIDIA:
        text = f"The provider is {definition.provider}; {PROVIDER_NVIDIA} is supported."
        return PoolProblem(PoolReason.PROVIDER_NOT_SUPPORTED, text)
    if definition.backend != BACKEND_DEVICE_PLUGIN:
        text = f"The backend is {definition.backend}; {BACKEND_DEVICE_PLUGIN} is supported."
        return PoolProblem(PoolReason.BACKEND_NOT_SUPPORTED, text)
    return None


def without_approval(*, requires_annotation: bool, has_selector: bool) -> str:
    """A warning about a pool that neither asks for annotations nor selects devices; empty for every other pool."""
    if requires_annotation or has_selector:
        return ""
    return (
        "spec.deviceAssignment: requireAnnotation is false, and without autoApproveSelector the pool takes only "
        "devices that people annotate. Set autoApproveSelector ({} selects every device), or remove requireAnnotation."
    )


def warning_of(definition: PoolDefined) -> str:
    """What a valid spec does not do although its author may expect it; empty where there is nothing."""
    has_selector = definition.auto_approve is not None
    return without_approval(requires_annotation=definition.requires_annotation, has_selector=has_selector)


@lru_cache(SPECS_CACHED_MAX)
def problem_of(pool: str, definition: str, cap: int) -> PoolProblem | None:
    """The first problem of the spec in a pool's row; `cap` is the module's setting `maxSlicesPerDevice`."""
    first = next(problems(pool, read_spec(definition).definition, cap), None)
    return first and first._replace(message=f"{first.message}.")


def problems(pool: str, definition: PoolDefined, cap: int) -> Iterator[PoolProblem]:
    """What is wrong with a recorded spec."""
    yield from name_problems(PoolRef.parse(pool).name)
    yield from profile_problems(definition.unit, definition.mig_profile)
    yield from slices_problems(definition.slices_per_unit, cap)
    selectors = {
        "spec.nodeSelector": definition.node_selector,
        "spec.deviceAssignment.autoApproveSelector": definition.auto_approve,
    }
    for field, selector in selectors.items():
        for index, one in enumerate(() if selector is None else selector.requirements):
            yield from expression_problems(f"{field}.matchExpressions[{index}]", one.operator, one.values)


def name_problems(name: str) -> Iterator[PoolProblem]:
    """What keeps the name out of the name of an extended resource."""
    if len(name) > RESOURCE_NAME_MAX or not _RESOURCE(name):
        text = f"it is part of a resource's name; use at most {RESOURCE_NAME_MAX} letters, digits, - and ."
        yield PoolProblem(PoolReason.NAME_INVALID, f"metadata.name: {text}")


def profile_problems(unit: object, profile: object) -> Iterator[PoolProblem]:
    """Whether the unit has the MIG profile that it needs."""
    field = "spec.resource.migProfile"
    if unit != UNIT_MIG:
        if profile is not None:
            text = f"only a pool with unit {UNIT_MIG} has one; remove it"
            yield PoolProblem(PoolReason.MIG_PROFILE_UNUSED, f"{field}: {text}")
    elif profile is None:
        yield PoolProblem(PoolReason.MIG_PROFILE_MISSING, f"{field}: a pool of MIG devices needs one, such as 1g.10gb")
    elif not isinstance(profile, str) or MigProfile.parse(profile) is None:
        yield PoolProblem(PoolReason.MIG_PROFILE_INVALID, f"{field}: {profile!r} is not {A_PROFILE}")


def slices_problems(slices: object, cap: int) -> Iterator[PoolProblem]:
    """Whether a unit may have so many slices."""
    bound = min(SLICES_PER_UNIT_MAX, cap)
    if not is_whole(slices) or not 1 <= slices <= bound:
        text = f"{slices!r} is not from 1 to {bound}, which maxSlicesPerDevice allows"
        yield PoolProblem(PoolReason.SLICES_ABOVE_CAP, f"spec.resource.slicesPerUnit: {text}")


def expression_problems(field: str, operator: object, values: Iterable[object]) -> Iterator[PoolProblem]:
    """Whether an expression of a label selector has as many values as its operator takes."""
    takes_values = SELECTOR_OPERATORS.get(operator) if isinstance(operator, str) else None
    if takes_values is None:
        text = f"operator: {operator!r} is not known; use {', '.join(SELECTOR_OPERATORS)}"
        yield PoolProblem(PoolReason.SELECTOR_INVALID, f"{field}.{text}")
    elif takes_values != bool(values):
        text = f"values: {operator} takes {'at least one' if takes_values else 'none'}"
        yield PoolProblem(PoolReason.SELECTOR_INVALID, f"{field}.{text}")


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value of JSON is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)
