"""The read models: projections that decide nothing, and make the tables that people read.

Each folds the facts of one part of the domain; the rows and handlers are there, and only their names are here.
"""

from typing import Any

from gpuledger.domain import event_index
from gpuledger.domain.devices import fold as devices
from gpuledger.domain.devices import installations, nodes
from gpuledger.domain.dra import fold as slices
from gpuledger.domain.dra import rows
from gpuledger.domain.dra.state import Availability
from gpuledger.domain.fact import Fact, Touched
from gpuledger.domain.health import fold as health
from gpuledger.domain.health.rows import SPECS as HEALTH_SPECS
from gpuledger.domain.health.rows import Health
from gpuledger.domain.machineconfig import history as updates
from gpuledger.domain.machineconfig.history_rows import SPECS as UPDATES_SPECS
from gpuledger.domain.machineconfig.history_rows import ConfigUpdates
from gpuledger.domain.preflight import results as preflight
from gpuledger.domain.preflight import results_gangs as gangs
from gpuledger.domain.preflight.results_rows import SPECS as PREFLIGHT_SPECS
from gpuledger.domain.preflight.results_rows import Preflight
from gpuledger.domain.sharing import history as sharing
from gpuledger.domain.sharing.rows import SPECS as SHARING_SPECS
from gpuledger.domain.workloads import allocations
from gpuledger.domain.workloads import fold as workloads
from gpuledger.events.envelope import Undecoded
from gpuledger.events.position import Generations
from gpuledger.events.preflight import PodPreflightGone, PodPreflightObserved
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Decisions, Projection


class DevicesProjection(Projection):
    """Passports, installations, failures, errors, slots and contradictions, from `device.*` and `slot.*` events."""

    name = "devices"
    version = 7
    same_rows_as = (4, 5, 6)
    specs = devices.SPECS
    handlers = {**devices.HANDLERS, **installations.HANDLERS}
    state_class = devices.Devices

    def touched(self, state: Any, fact: Fact) -> Touched:  # noqa: ANN401 - it is this projection's own
        """The lives of a device and a slot, which leave memory when they end, where the fact is of a time before."""
        return installations.touched(state, fact)


class NodesProjection(Projection):
    """The resources of each node, now and at any time, from `node.*` and `slot.declared` events."""

    name = "nodes"
    version = 3
    same_rows_as = (1, 2)
    specs = nodes.SPECS
    handlers = nodes.HANDLERS
    pages = True
    state_class = nodes.Nodes

    def touched(self, state: Any, fact: Fact) -> Touched:  # noqa: ANN401 - it is this projection's own
        """The versions of a node, where the fact may change those that are over."""
        return nodes.touched(state, fact)


class WorkloadsProjection(Projection):
    """Workloads and their GPU allocations over time; ended ones are read back when a late `workload.*` event comes."""

    name = "workloads"
    version = 3
    same_rows_as = (2,)
    specs = workloads.SPECS
    handlers = workloads.HANDLERS
    pages = True
    state_class = workloads.Workloads

    def touched(self, state: Any, fact: Fact) -> Touched:  # noqa: ANN401, ARG002 - the fact says it all
        """A workload's row and its allocations."""
        return workloads.touched(fact)


class AllocationsProjection(Projection):
    """The devices of each container, from `allocation.*` events; its past is read back when a late event comes."""

    name = "allocations"
    version = 5
    specs = allocations.SPECS
    handlers = allocations.HANDLERS
    pages = True
    state_class = allocations.Allocations

    def touched(self, state: Any, fact: Fact) -> Touched:  # noqa: ANN401 - it is this projection's own
        """The past of the container, where the fact may change it."""
        return allocations.touched(state, fact)


class AvailabilityProjection(Projection):
    """Slices, claims and who holds which device, from `slice.*`, `claim.*`, `device-class.*` and `taint-rule.*`."""

    name = "availability"
    version = 5
    specs = rows.SPECS
    handlers = slices.HANDLERS
    state_class = Availability


class IncidentsProjection(Projection):
    """Checks, their reports and incidents, from `node.health-reported`, `device.*` and the ends of nodes and cards."""

    name = "incidents"
    version = 3
    specs = HEALTH_SPECS
    handlers = health.HANDLERS
    state_class = Health

    def touched(self, state: Any, fact: Fact) -> Touched:  # noqa: ANN401 - it is this projection's own
        """The past of a check, which leaves memory, where the fact is not later than all of it."""
        return health.touched(state, fact)


class PreflightProjection(Projection):
    """Attempts at preflight checks and gangs, from `pod.preflight-*` and `gang.*` events."""

    name = "preflight"
    version = 2
    specs = PREFLIGHT_SPECS
    handlers = {**preflight.HANDLERS, **gangs.HANDLERS}
    pages = True
    state_class = Preflight

    def touched(self, state: Any, fact: Fact) -> Touched:  # noqa: ANN401 - it is this projection's own
        """The past of a pod or gang, where it is not there or the fact is not later than all others about it."""
        data = fact.event.data
        if isinstance(data, PodPreflightObserved | PodPreflightGone):
            return preflight.touched(state, fact, data)
        return gangs.touched(state, fact)


class SharesProjection(Projection):
    """Shared devices and who holds what of them, from `node.devices-shared`, `pod.sharing-*` and `pod.devices-*`."""

    name = "shares"
    version = 1
    specs = SHARING_SPECS
    handlers = sharing.HANDLERS
    pages = True
    state_class = sharing.SharingHistory

    def touched(self, state: Any, fact: Fact) -> Touched:  # noqa: ANN401 - it is this projection's own
        """The past of a node where the fact is late, and of a pod that is not in memory."""
        return sharing.touched(state, fact)


class UpdatesProjection(Projection):
    """Rollouts of machine configurations and updates of nodes, from what the service `rollout` decides."""

    name = "updates"
    version = 2
    specs = UPDATES_SPECS
    handlers = updates.HANDLERS
    state_class = ConfigUpdates


class EventIndexProjection(Projection):
    """Where the events about devices, nodes, pools and names that share a subject stand, and some events, by name."""

    name = "index"
    version = 3
    specs = event_index.SPECS
    handlers = event_index.HANDLERS
    reads = True
    state_class = event_index.EventIndex

    def read(
        self,
        state: event_index.EventIndex,
        message: Message,
        event: Undecoded | None,
        generations: Generations,  # noqa: ARG002
    ) -> Decisions:
        """Index the message, whatever becomes of it."""
        state.add(message.sequence, message.subject, message.data, message.recorded_ns, event)
        return ()


def read_models() -> list[Projection]:
    """A new instance of each read model."""
    return [
        DevicesProjection(),
        NodesProjection(),
        WorkloadsProjection(),
        AllocationsProjection(),
        AvailabilityProjection(),
        IncidentsProjection(),
        PreflightProjection(),
        SharesProjection(),
        UpdatesProjection(),
        EventIndexProjection(),
    ]
