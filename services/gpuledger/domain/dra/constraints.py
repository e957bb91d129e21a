"""What is in the way of a request for a device: obstacles that are the allocator's, in words. Pure.

A request tolerates taints, asks for amounts, and may ask for administrators' access, for which nobody has a device.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.domain.dra.capacity import consumption
from gpuledger.domain.dra.counters import Left, short_counters
from gpuledger.domain.dra.facts import amounts
from gpuledger.domain.dra.objects import Device, Holding, Taint
from gpuledger.domain.dra.pools import Placed, PoolView
from gpuledger.domain.dra.use import Use
from gpuledger.domain.dra.verdicts import Obstacle
from gpuledger.domain.quantities import Quantity
from gpuledger.events.claim import Toleration, Wish


class Mismatch(StrEnum):
    """What keeps a device from a request besides the obstacles that every request meets."""

    SELECTOR = "SelectorDoesNotMatch"
    SELECTOR_FAILS = "SelectorFails"
    UNREACHABLE = "NotReachable"


UNSELECTED = frozenset({Mismatch.SELECTOR, Mismatch.SELECTOR_FAILS})
ORDER: Final = (
    *Mismatch,
    Obstacle.TAKEN,
    Obstacle.CAPACITY,
    Obstacle.OUTDATED,
    Obstacle.INCOMPLETE,
    Obstacle.INVALID,
    Obstacle.TAINTED,
    Obstacle.COUNTERS,
)


class Hindrance(NamedTuple):
    """One thing in the way; `detail` says more in words, `holdings` who has what is asked for."""

    kind: Obstacle | Mismatch
    detail: str = ""
    holdings: tuple[Holding, ...] = ()


def in_order(hindrances: Iterable[Hindrance]) -> list[Hindrance]:
    """The most telling first, as statuses have it: who has it, then what its pool lacks."""
    return sorted(hindrances, key=lambda one: ORDER.index(one.kind))


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether a request does not mind a taint."""
    return any(
        one.effect in (None, taint.effect)
        and one.key in (None, taint.key)
        and (one.operator == "Exists" or (one.operator == "Equal" and (one.value or "") == (taint.value or "")))
        for one in tolerations
    )


def asked_of(wish: Wish) -> dict[str, Quantity]:
    """How much of each capacity a request asks for."""
    return amounts(wish.capacity)


def shortages(device: Device, use: Use, asked: Mapping[str, Quantity]) -> Iterator[str]:
    """Of which capacities a device has too little left, after the rounding that its policies ask for."""
    for name in asked.keys() - device.capacity.keys():
        yield f"{name}: {asked[name]} asked, and it has none"
    for name, one in device.capacity.items():
        given = asked.get(name)
        consumed = consumption(one, None if given is None else given.nanos)
        left = one.value.nanos - use.consumed_of(name)
        words = "no amount" if given is None else str(given)
        if consumed is None:
            yield f"{name}: {words} asked, which its policy does not allow"
        elif consumed > left:
            amount = one.value.as_much
            rounded = "" if given is not None and consumed == given.nanos else f", which consumes {amount(consumed)}"
            yield f"{name}: {words} asked{rounded}, {amount(max(left, 0))} left"


def of_device(
    wish: Wish,
    device: Device,
    use: Use,
    left: Left,
    overdrawn: Sequence[str],
    holdings: Sequence[Holding],
    taints: Iterable[Taint],
) -> Iterator[Hindrance]:
    """What a device itself puts in the way of a request, for which it is selected; the counters are its pool's."""
    is_taken = use.is_exclusive and not wish.admin_access
    if is_taken:
        yield Hindrance(Obstacle.TAKEN, "", tuple(holdings))
    short = [] if is_taken else sorted(shortages(device, use, asked_of(wish)))
    if short:
        yield Hindrance(Obstacle.CAPACITY, "; ".join(short), tuple(holdings))
    blocking = [taint for taint in taints if taint.blocks and not tolerates(wish.tolerations, taint)]
    if blocking:
        yield Hindrance(Obstacle.TAINTED, ", ".join(map(_taint_text, blocking)))
    if not is_taken and (counters := short_counters(device, use, left, overdrawn)):
        yield Hindrance(Obstacle.COUNTERS, "; ".join(_counter_text(device, name, left) for name in counters))


def of_view(view: PoolView) -> Iterator[Hindrance]:
    """What the pool puts in the way of every request."""
    if not view.on_node:
        yield Hindrance(Obstacle.OUTDATED, f"generation {view.generation} of the pool is published elsewhere")
    elif not view.is_complete:
        seen = f"{view.observed} of {view.expected} slices of generation {view.generation} are there"
        yield Hindrance(Obstacle.INCOMPLETE, seen)
    elif not view.is_valid:
        yield Hindrance(Obstacle.INVALID, "; ".join(view.problems))


def outdated(placed: Placed, view: PoolView) -> Hindrance:
    """What is in the way of devices whose slice does not count any more."""
    return Hindrance(Obstacle.OUTDATED, f"generation {placed.slice.generation}, and {view.generation} counts")


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _counter_text(device: Device, name: str, left: Left) -> str:
    counter_set, _, counter = name.partition("/")
    needed = device.consumes.get(counter_set, {}).get(counter)
    there = Quantity(left[counter_set][counter]) if needed is None else needed.as_much(left[counter_set][counter])
    return f"{name}: {needed or 0} needed, {there} left"
