"""Decides the orders of a node's agent: which devices of the node belong to pools, and how each is to be set up. Pure.

An agent never gets an order that no pool's spec gives: while a spec makes no sense, or its pool is to go, the devices
keep the set-up that they have, until they leave or the spec is corrected.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Final, Literal, NamedTuple

from gpuledger.api.phases import AssignmentPhase
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.reasons import PoolReason
from gpuledger.domain.pools.orders import last_orders, orders_text
from gpuledger.domain.pools.pools import Assignment, Pool
from gpuledger.domain.pools.rows import NO_ORDERS
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.pools.validation import problem_of, unsupported
from gpuledger.events.node import CARDS_PER_NODE_MAX, NodeDevicesWanted, WantedDevice

_NOT_OF_SETUP: Final = frozenset({PoolReason.SLICES_ABOVE_CAP, PoolReason.SELECTOR_INVALID})
"""Problems of a spec that leave no doubt about the set-up of its devices; slices above the cap are cut to it."""

_LastOrders = Callable[[], Mapping[str, WantedDevice]]
"""The last orders of the node's agent, by device, read only where they are needed."""


class _Setup(NamedTuple):
    """How a device is divided, and shared."""

    unit: Literal["Card", "MIG"]
    mig_profile: str | None
    slices_per_unit: int


_WHOLE: Final = _Setup("Card", None, 1)
"""Stands in an order to release a device whose set-up is not recorded any more."""


def orders_change(state: PoolFacts, node: str) -> NodeDevicesWanted | None:
    """The new orders of the node's agent; None if it has them already."""
    row, devices = state.orders.get(node), tuple(_orders(state, node))
    if orders_text(devices) == (NO_ORDERS if row is None else row.devices):
        return None
    return NodeDevicesWanted(devices=devices)


def _orders(state: PoolFacts, node: str) -> Iterator[WantedDevice]:
    """By device, as many as one list holds: pools take no more, but may hold more from former times."""
    last = cache(partial(last_orders, state, node))
    for name in state.held_on(node)[:CARDS_PER_NODE_MAX]:
        assignment = state.assignment.rows[name]
        pool = assignment.pool or ""
        setup = _setup(state, pool, assignment, last)
        if setup is not None:
            device, report = state.device.rows[name], state.setup.get(name)
            yield WantedDevice(
                device=name,
                uuid=device.uuid,
                pci_address=device.pci_address,
                pool=pool,
                resource=PoolRef.parse(pool).resource_name,
                unit=setup.unit,
                mig_profile=setup.mig_profile,
                slices_per_unit=setup.slices_per_unit,
                releasing=assignment.phase == AssignmentPhase.UNASSIGNING,
                asked_at=(report and report.requested_at) or assignment.changed_at,
            )


def _setup(state: PoolFacts, pool: str, assignment: Assignment, last: _LastOrders) -> _Setup | None:
    """The set-up of the device; None if none is recorded. A device that leaves its pool keeps the set-up it has."""
    now = _by_spec(state, state.pool.get(pool))
    if assignment.phase == AssignmentPhase.UNASSIGNING:
        return _by_order(last().get(assignment.device), pool) or now or _WHOLE
    return now or _by_order(last().get(assignment.device), pool)


def _by_spec(state: PoolFacts, row: Pool | None) -> _Setup | None:
    """The set-up that the pool's spec gives; None if it makes no sense, or there is no pool."""
    if row is None:
        return None
    definition, cap = row.spec.definition, state.settings_in_force().max_slices_per_device
    problem = unsupported(definition) or problem_of(row.subject, row.payload, cap)
    if problem is not None and problem.reason not in _NOT_OF_SETUP:
        return None
    return _Setup(definition.unit, definition.mig_profile, min(definition.slices_per_unit, cap))


def _by_order(order: WantedDevice | None, pool: str) -> _Setup | None:
    if order is None or order.pool != pool:
        return None
    return _Setup(order.unit, order.mig_profile, order.slices_per_unit)
