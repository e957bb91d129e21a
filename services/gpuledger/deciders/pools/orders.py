"""What a node's agent is to do with the devices that pools have: all of them, each with its set-up. Pure.

An agent is never told to offer a device in a way that nobody asked for: where a pool's spec makes no sense, or the pool
is to go, its devices keep the set-up that they have until they leave or the spec is put right.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Final, Literal, NamedTuple

from gpuledger.api.phases import AssignmentPhase
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.reasons import PoolReason
from gpuledger.domain.pools.orders import NOTHING, last_list, text_of
from gpuledger.domain.pools.pools import Assignment, Pool
from gpuledger.domain.pools.spec import read_spec
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.pools.validation import problem_of, unsupported
from gpuledger.events.node import CARDS_PER_NODE_MAX, NodeDevicesWanted, WantedDevice

_NOT_OF_SETUP: Final = frozenset({PoolReason.SLICES_ABOVE_CAP, PoolReason.SELECTOR_INVALID})
"""Problems of a spec that leave no doubt about how its devices are set up; what is above the cap is cut to it."""

_List = Callable[[], Mapping[str, WantedDevice]]
"""What the agent was told last, by device, for who needs to know."""


class _Setup(NamedTuple):
    """How a device is divided, and shared."""

    unit: Literal["Card", "MIG"]
    mig_profile: str | None
    slices_per_unit: int


_WHOLE: Final = _Setup("Card", None, 1)
"""What is said of a device that is only to be taken back, where nobody knows any more how it was set up."""


def wanted_change(state: PoolFacts, node: str) -> NodeDevicesWanted | None:
    """What the node's agent is to do from now on; None where it was told all of it."""
    known, devices = state.wanted.get(node), tuple(_wanted(state, node))
    if text_of(devices) == (NOTHING if known is None else known.devices):
        return None
    return NodeDevicesWanted(devices=devices)


def _wanted(state: PoolFacts, node: str) -> Iterator[WantedDevice]:
    """By device, and no more of them than one list holds: pools take no more, but may have more from former times."""
    last = cache(partial(last_list, state, node))
    for name in state.held_on(node)[:CARDS_PER_NODE_MAX]:
        assignment = state.assignment.rows[name]
        pool = assignment.pool or ""
        setup = _setup(state, pool, assignment, last)
        if setup is not None:
            device, said = state.device.rows[name], state.setup.get(name)
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
                asked_at=(said and said.asked_at) or assignment.changed_at,
            )


def _setup(state: PoolFacts, pool: str, assignment: Assignment, last: _List) -> _Setup | None:
    """How the device is to be set up; None where nobody knows. What leaves its pool is not set up otherwise first."""
    now = _asked_for(state, state.pool.get(pool))
    if assignment.phase == AssignmentPhase.UNASSIGNING:
        return _told(last().get(assignment.device), pool) or now or _WHOLE
    return now or _told(last().get(assignment.device), pool)


def _asked_for(state: PoolFacts, row: Pool | None) -> _Setup | None:
    """What the pool's spec says; None where it makes no sense, or there is none."""
    if row is None:
        return None
    said, cap = read_spec(row.said).said, state.settings_in_force().max_slices_per_device
    wrong = unsupported(said) or problem_of(row.subject, row.said, cap)
    if wrong is not None and wrong.reason not in _NOT_OF_SETUP:
        return None
    return _Setup(said.unit, said.mig_profile, min(said.slices_per_unit, cap))


def _told(known: WantedDevice | None, pool: str) -> _Setup | None:
    if known is None or known.pool != pool:
        return None
    return _Setup(known.unit, known.mig_profile, known.slices_per_unit)
