"""Searches one node for devices that satisfy all requests at once, as the allocator does. Pure.

It goes request by request and device by device and backtracks. Devices already chosen count as taken, with their shares
and counters. The search is bounded, and reports when it gave up.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from gpuledger.domain.dra.candidates import Candidate
from gpuledger.domain.dra.capacity import consumption
from gpuledger.domain.dra.constraints import requested_amounts, shortages
from gpuledger.domain.dra.counters import Left
from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.dra.use import Use
from gpuledger.events.claim import Constraint, Wish
from gpuledger.events.slice import Version

Key = TypeVar("Key")

STEPS_MAX = 50_000
"""The most devices that a search tries on all nodes together."""

RESULTS_MAX = 32
"""The most devices that one claim can have."""


class OutOfStepsError(Exception):
    """The search has used all its steps and found nothing so far."""


class Steps:
    """The budget of a search."""

    def __init__(self, left: int = STEPS_MAX) -> None:
        self.left = left

    def take(self) -> None:
        """Use one step.

        Raises:
            OutOfStepsError: none is left.
        """
        self.left -= 1
        if self.left < 0:
            raise OutOfStepsError


class Option(NamedTuple):
    """One way to satisfy a request: `number` of these devices, or all of them. `name` is the wish's own."""

    request: str
    name: str
    wish: Wish
    number: int
    candidates: Sequence[Candidate]

    @property
    def label(self) -> str:
        """The name as a claim's results and constraints write it."""
        return self.request if self.name == self.request else f"{self.request}/{self.name}"

    @property
    def takes_all(self) -> bool:
        """Whether it requests all devices that match."""
        return self.wish.mode == "All"


class ClaimDemand(NamedTuple):
    """A claim: the options of each request, the preferred first, and the constraints on their devices."""

    claim: str
    requests: Sequence[Sequence[Option]]
    constraints: Sequence[Constraint]


class AllocatedDevice(NamedTuple):
    """A device that was chosen for an option of a claim."""

    claim: str
    label: str
    candidate: Candidate


Value = tuple[str, object]
"""An attribute's type and value; devices match only where both are equal."""


def attribute_of(candidate: Candidate, name: str) -> Value | None:
    """An attribute by its full name; the driver's own have no domain before them."""
    attributes, (domain, _, bare) = candidate.payload.attributes, name.partition("/")
    value = attributes.get(name)
    if value is None and domain == candidate.pool.driver:
        value = attributes.get(bare)
    if value is None:
        return None
    return type(value).__name__, value.version if isinstance(value, Version) else value


def concerns(constraint: Constraint, option: Option) -> bool:
    """Whether a constraint applies to an option's devices."""
    return not constraint.requests or not {option.request, option.label}.isdisjoint(constraint.requests)


class _Chosen(NamedTuple):
    """The devices chosen so far, and what they take: whole devices, shares and counters."""

    allocated: tuple[AllocatedDevice, ...] = ()
    held: frozenset[tuple[PoolId, str, str]] = frozenset()
    consumed: Mapping[tuple[PoolId, str], Mapping[str, int]] = {}
    counted: Mapping[PoolId, Mapping[tuple[str, str], int]] = {}
    values: Mapping[int, tuple[Value, ...]] = {}


class Search:
    """Searches one node, with its pools' remaining counters, for devices that satisfy the demands."""

    def __init__(self, demands: Sequence[ClaimDemand], left: Mapping[PoolId, Left], steps: Steps) -> None:
        self._demands = demands
        self._left = left
        self._steps = steps

    def found(self) -> tuple[AllocatedDevice, ...] | None:
        """The devices of every request; None where no combination fits.

        Raises:
            OutOfStepsError: the search gave up before it knew.
        """
        return self._claim(0, _Chosen())

    def _claim(self, number: int, chosen: _Chosen) -> tuple[AllocatedDevice, ...] | None:
        if number == len(self._demands):
            return chosen.allocated
        return self._request(number, 0, chosen._replace(values={}))

    def _request(self, claim: int, number: int, chosen: _Chosen) -> tuple[AllocatedDevice, ...] | None:
        demand = self._demands[claim]
        if number == len(demand.requests):
            return self._claim(claim + 1, chosen)
        results = sum(one.claim == demand.claim for one in chosen.allocated)
        for option in demand.requests[number]:
            if results + option.number > RESULTS_MAX or (option.takes_all and not option.number):
                continue
            found = self._device(claim, number, option, 0, 0, chosen)
            if found is not None:
                return found
        return None

    def _device(
        self, claim: int, request: int, option: Option, number: int, first: int, chosen: _Chosen
    ) -> tuple[AllocatedDevice, ...] | None:
        """Choose the option's next device, from `first` on; earlier ones were already combined with all later ones."""
        if number == option.number:
            return self._request(claim, request + 1, chosen)
        positions = range(number, number + 1) if option.takes_all else range(first, len(option.candidates))
        for position in positions:
            self._steps.take()
            candidate = option.candidates[position]
            after = self._with(self._demands[claim], option, candidate, chosen)
            if after is None:
                continue
            following = position if candidate.device.is_shareable else position + 1
            found = self._device(claim, request, option, number + 1, following, after)
            if found is not None:
                return found
        return None

    def _with(self, demand: ClaimDemand, option: Option, candidate: Candidate, chosen: _Chosen) -> _Chosen | None:
        """The choice with one more device; None where it does not fit beside the others."""
        if not candidate.is_free or not self._is_left(demand, option, candidate, chosen):
            return None
        values = _agreeing(demand.constraints, option, candidate, chosen.values)
        if values is None:
            return None
        key = (candidate.pool, candidate.device.name)
        held, consumed, counted = chosen.held, chosen.consumed, chosen.counted
        if _pays(candidate) and key not in consumed:
            counted = {**counted, candidate.pool: _sum(counted.get(candidate.pool, {}), _counters(candidate))}
        if candidate.device.is_shareable:
            consumed = {**consumed, key: _sum(consumed.get(key, {}), _consumption(option, candidate))}
        else:
            held |= {(*key, demand.claim)}
        allocated = (*chosen.allocated, AllocatedDevice(demand.claim, option.label, candidate))
        return _Chosen(allocated, held, consumed, counted, values)

    def _is_left(self, demand: ClaimDemand, option: Option, candidate: Candidate, chosen: _Chosen) -> bool:
        key = (candidate.pool, candidate.device.name)
        holders = {claim for *held, claim in chosen.held if tuple(held) == key}
        if demand.claim in holders if option.wish.admin_access else holders:
            return False
        added = chosen.consumed.get(key)
        if added and any(shortages(candidate.device, _used(candidate.use, added), requested_amounts(option.wish))):
            return False
        if not _pays(candidate) or key in chosen.consumed:
            return True
        counted, needs = chosen.counted.get(candidate.pool, {}), _counters(candidate)
        return all(
            amount - counted.get((name, counter), 0) >= needs.get((name, counter), 0)
            for name, counters in self._left.get(candidate.pool, {}).items()
            for counter, amount in counters.items()
        )


def _agreeing(
    constraints: Sequence[Constraint], option: Option, candidate: Candidate, values: Mapping[int, tuple[Value, ...]]
) -> Mapping[int, tuple[Value, ...]] | None:
    """The attribute values with one more device; None where a constraint forbids it."""
    after = dict(values)
    for number, constraint in enumerate(constraints):
        if not concerns(constraint, option):
            continue
        value = attribute_of(candidate, constraint.match_attribute or constraint.distinct_attribute or "")
        before = values.get(number, ())
        if value is None or (before and (value in before) is (constraint.match_attribute is None)):
            return None
        after[number] = (*before, value)
    return after


def _pays(candidate: Candidate) -> bool:
    """Whether one more claim on it draws on counters; a share of a device that is already shared does not."""
    device = candidate.device
    return bool(device.consumes) and not (device.is_shareable and candidate.use.consumed is not None)


def _counters(candidate: Candidate) -> dict[tuple[str, str], int]:
    return {
        (name, counter): amount.nanos
        for name, counters in candidate.device.consumes.items()
        for counter, amount in counters.items()
    }


def _consumption(option: Option, candidate: Candidate) -> dict[str, int]:
    requested = requested_amounts(option.wish)
    return {
        name: consumption(one, requested[name].nanos if name in requested else None) or 0
        for name, one in candidate.device.capacity.items()
    }


def _used(use: Use, added: Mapping[str, int]) -> Use:
    return use._replace(consumed=_sum(use.consumed or {}, added))


def _sum(before: Mapping[Key, int], added: Mapping[Key, int]) -> dict[Key, int]:
    return {key: before.get(key, 0) + added.get(key, 0) for key in (*before, *added)}
