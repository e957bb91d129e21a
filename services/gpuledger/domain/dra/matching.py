"""Whether all that claims ask for can be had at once on one node: devices enough for each request, and agreeing. Pure.

A search as the allocator's own: request by request, device by device, taking back what leads nowhere. Devices that were
chosen count as taken, with their shares and counters. It is bounded, and says when it gave up.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from gpuledger.domain.dra.candidates import Candidate
from gpuledger.domain.dra.capacity import consumption
from gpuledger.domain.dra.constraints import asked_of, shortages
from gpuledger.domain.dra.counters import Left
from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.dra.use import Use
from gpuledger.events.claim import Constraint, Wish
from gpuledger.events.slice import Version

Key = TypeVar("Key")

STEPS_MAX = 50_000
"""Devices that a search tries, on all nodes together."""

RESULTS_MAX = 32
"""Devices that one claim can be given."""


class OutOfStepsError(Exception):
    """The search has tried as much as it may, and found nothing so far."""


class Steps:
    """Counts down what may still be tried."""

    def __init__(self, left: int = STEPS_MAX) -> None:
        self.left = left

    def take(self) -> None:
        """One more was tried.

        Raises:
            OutOfStepsError: that was too many.
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
        """Whether it asks for all that match."""
        return self.wish.mode == "All"


class Demand(NamedTuple):
    """A claim: for each of its requests the options, the best first, and what their devices have to agree in."""

    claim: str
    requests: Sequence[Sequence[Option]]
    constraints: Sequence[Constraint]


class Given(NamedTuple):
    """A device that an option got."""

    claim: str
    label: str
    candidate: Candidate


Value = tuple[str, object]
"""An attribute's type and value; both have to be the same."""


def attribute_of(candidate: Candidate, name: str) -> Value | None:
    """An attribute by its full name; the driver's own have no domain before them."""
    attributes, (domain, _, bare) = candidate.said.attributes, name.partition("/")
    value = attributes.get(name)
    if value is None and domain == candidate.pool.driver:
        value = attributes.get(bare)
    if value is None:
        return None
    return type(value).__name__, value.version if isinstance(value, Version) else value


def concerns(constraint: Constraint, option: Option) -> bool:
    """Whether a constraint is about an option's devices."""
    return not constraint.requests or not {option.request, option.label}.isdisjoint(constraint.requests)


class _Chosen(NamedTuple):
    """What was given so far, and what that takes: from devices for one, from shared ones, from counters."""

    given: tuple[Given, ...] = ()
    held: frozenset[tuple[PoolId, str, str]] = frozenset()
    consumed: Mapping[tuple[PoolId, str], Mapping[str, int]] = {}
    counted: Mapping[PoolId, Mapping[tuple[str, str], int]] = {}
    values: Mapping[int, tuple[Value, ...]] = {}


class Search:
    """Looks for devices for demands on one node, of whose pools this much is left."""

    def __init__(self, demands: Sequence[Demand], left: Mapping[PoolId, Left], steps: Steps) -> None:
        self._demands = demands
        self._left = left
        self._steps = steps

    def found(self) -> tuple[Given, ...] | None:
        """What every request gets; None where there is no way.

        Raises:
            OutOfStepsError: it is not known.
        """
        return self._claim(0, _Chosen())

    def _claim(self, number: int, chosen: _Chosen) -> tuple[Given, ...] | None:
        if number == len(self._demands):
            return chosen.given
        return self._request(number, 0, chosen._replace(values={}))

    def _request(self, claim: int, number: int, chosen: _Chosen) -> tuple[Given, ...] | None:
        demand = self._demands[claim]
        if number == len(demand.requests):
            return self._claim(claim + 1, chosen)
        results = sum(one.claim == demand.claim for one in chosen.given)
        for option in demand.requests[number]:
            if results + option.number > RESULTS_MAX or (option.takes_all and not option.number):
                continue
            found = self._device(claim, number, option, 0, 0, chosen)
            if found is not None:
                return found
        return None

    def _device(
        self, claim: int, request: int, option: Option, number: int, first: int, chosen: _Chosen
    ) -> tuple[Given, ...] | None:
        """The option's next device. Those before `first` were tried together with the ones after them."""
        if number == option.number:
            return self._request(claim, request + 1, chosen)
        places = range(number, number + 1) if option.takes_all else range(first, len(option.candidates))
        for place in places:
            self._steps.take()
            candidate = option.candidates[place]
            after = self._with(self._demands[claim], option, candidate, chosen)
            if after is None:
                continue
            following = place if candidate.device.is_shareable else place + 1
            found = self._device(claim, request, option, number + 1, following, after)
            if found is not None:
                return found
        return None

    def _with(self, demand: Demand, option: Option, candidate: Candidate, chosen: _Chosen) -> _Chosen | None:
        """The same with one more device; None where it cannot be had besides the others."""
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
        given = (*chosen.given, Given(demand.claim, option.label, candidate))
        return _Chosen(given, held, consumed, counted, values)

    def _is_left(self, demand: Demand, option: Option, candidate: Candidate, chosen: _Chosen) -> bool:
        key = (candidate.pool, candidate.device.name)
        holders = {claim for *held, claim in chosen.held if tuple(held) == key}
        if demand.claim in holders if option.wish.admin_access else holders:
            return False
        added = chosen.consumed.get(key)
        if added and any(shortages(candidate.device, _used(candidate.use, added), asked_of(option.wish))):
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
    """The attributes of the devices so far, with one more; None where that disagrees."""
    after = dict(values)
    for number, constraint in enumerate(constraints):
        if not concerns(constraint, option):
            continue
        value = attribute_of(candidate, constraint.match_attribute or constraint.distinct_attribute or "")
        known = values.get(number, ())
        if value is None or (known and (value in known) is (constraint.match_attribute is None)):
            return None
        after[number] = (*known, value)
    return after


def _pays(candidate: Candidate) -> bool:
    """Whether one more claim on it takes from counters; a share of what is shared already does not."""
    device = candidate.device
    return bool(device.consumes) and not (device.is_shareable and candidate.use.consumed is not None)


def _counters(candidate: Candidate) -> dict[tuple[str, str], int]:
    return {
        (name, counter): amount.nanos
        for name, counters in candidate.device.consumes.items()
        for counter, amount in counters.items()
    }


def _consumption(option: Option, candidate: Candidate) -> dict[str, int]:
    asked = asked_of(option.wish)
    return {
        name: consumption(one, asked[name].nanos if name in asked else None) or 0
        for name, one in candidate.device.capacity.items()
    }


def _used(use: Use, added: Mapping[str, int]) -> Use:
    return use._replace(consumed=_sum(use.consumed or {}, added))


def _sum(known: Mapping[Key, int], added: Mapping[Key, int]) -> dict[Key, int]:
    return {key: known.get(key, 0) + added.get(key, 0) for key in (*known, *added)}
