"""The constraints that keep a request from a device, in the allocator's terms, with the wording of each. Pure.

A request may tolerate taints, ask for amounts, and ask for administrators' access, which no other claim blocks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.domain.dra.capacity import consumption
from gpuledger.domain.dra.counters import Left, short_counters
from gpuledger.domain.dra.device_state import UnavailableReason
from gpuledger.domain.dra.facts import amounts
from gpuledger.domain.dra.objects import DeviceTaint, DraDevice, Holding
from gpuledger.domain.dra.pools import LocatedDevice, PoolView
from gpuledger.domain.dra.use import Use
from gpuledger.domain.quantities import Quantity
from gpuledger.events.claim import Toleration, Wish


class Mismatch(StrEnum):
    """The reasons that keep a device from one request only."""

    SELECTOR = "SelectorDoesNotMatch"
    SELECTOR_FAILS = "SelectorFails"
    UNREACHABLE = "NotReachable"


UNSELECTED = frozenset({Mismatch.SELECTOR, Mismatch.SELECTOR_FAILS})
ORDER: Final = (
    *Mismatch,
    UnavailableReason.TAKEN,
    UnavailableReason.CAPACITY,
    UnavailableReason.OUTDATED,
    UnavailableReason.INCOMPLETE,
    UnavailableReason.INVALID,
    UnavailableReason.TAINTED,
    UnavailableReason.COUNTERS,
)


class DeviceConstraint(NamedTuple):
    """One thing that keeps a device from a request: its kind, details for people, and the holdings that cause it."""

    kind: UnavailableReason | Mismatch
    detail: str = ""
    holdings: tuple[Holding, ...] = ()


def in_order(constraints: Iterable[DeviceConstraint]) -> list[DeviceConstraint]:
    """The constraints in the order of importance that statuses use: holders first, then the pool."""
    return sorted(constraints, key=lambda one: ORDER.index(one.kind))


def tolerates(tolerations: Iterable[Toleration], taint: DeviceTaint) -> bool:
    """Whether one of the tolerations covers the taint."""
    return any(
        one.effect in (None, taint.effect)
        and one.key in (None, taint.key)
        and (one.operator == "Exists" or (one.operator == "Equal" and (one.value or "") == (taint.value or "")))
        for one in tolerations
    )


def requested_amounts(wish: Wish) -> dict[str, Quantity]:
    """How much of each capacity a request needs."""
    return amounts(wish.capacity)


def shortages(device: DraDevice, use: Use, requested: Mapping[str, Quantity]) -> Iterator[str]:
    """The capacities of which a device has too little left, after the rounding that its policies demand."""
    for name in requested.keys() - device.capacity.keys():
        yield f"{name}: {requested[name]} asked, and it has none"
    for name, one in device.capacity.items():
        amount = requested.get(name)
        consumed = consumption(one, None if amount is None else amount.nanos)
        left = one.value.nanos - use.consumed_of(name)
        text = "no amount" if amount is None else str(amount)
        if consumed is None:
            yield f"{name}: {text} asked, which its policy does not allow"
        elif consumed > left:
            is_exact = amount is not None and consumed == amount.nanos
            rounded = "" if is_exact else f", which consumes {one.value.as_much(consumed)}"
            yield f"{name}: {text} asked{rounded}, {one.value.as_much(max(left, 0))} left"


def of_device(
    wish: Wish,
    device: DraDevice,
    use: Use,
    left: Left,
    overdrawn: Sequence[str],
    holdings: Sequence[Holding],
    taints: Iterable[DeviceTaint],
) -> Iterator[DeviceConstraint]:
    """The constraints of a selected device on a request; the counters are its pool's."""
    is_taken = use.is_exclusive and not wish.admin_access
    if is_taken:
        yield DeviceConstraint(UnavailableReason.TAKEN, "", tuple(holdings))
    short = [] if is_taken else sorted(shortages(device, use, requested_amounts(wish)))
    if short:
        yield DeviceConstraint(UnavailableReason.CAPACITY, "; ".join(short), tuple(holdings))
    blocking = [taint for taint in taints if taint.blocks and not tolerates(wish.tolerations, taint)]
    if blocking:
        yield DeviceConstraint(UnavailableReason.TAINTED, ", ".join(map(_taint_text, blocking)))
    if not is_taken and (counters := short_counters(device, use, left, overdrawn)):
        yield DeviceConstraint(
            UnavailableReason.COUNTERS, "; ".join(_counter_text(device, name, left) for name in counters)
        )


def of_view(view: PoolView) -> Iterator[DeviceConstraint]:
    """The constraints of the pool on every request."""
    if not view.on_node:
        yield DeviceConstraint(
            UnavailableReason.OUTDATED, f"generation {view.generation} of the pool is published elsewhere"
        )
    elif not view.is_complete:
        text = f"{view.observed} of {view.expected} slices of generation {view.generation} are there"
        yield DeviceConstraint(UnavailableReason.INCOMPLETE, text)
    elif not view.is_valid:
        yield DeviceConstraint(UnavailableReason.INVALID, "; ".join(view.problems))


def outdated(located: LocatedDevice, view: PoolView) -> DeviceConstraint:
    """The constraint on devices whose slice is outdated."""
    return DeviceConstraint(
        UnavailableReason.OUTDATED, f"generation {located.slice.generation}, and {view.generation} counts"
    )


def _taint_text(taint: DeviceTaint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _counter_text(device: DraDevice, name: str, left: Left) -> str:
    counter_set, _, counter = name.partition("/")
    needed = device.consumes.get(counter_set, {}).get(counter)
    there = Quantity(left[counter_set][counter]) if needed is None else needed.as_much(left[counter_set][counter])
    return f"{name}: {needed or 0} needed, {there} left"
