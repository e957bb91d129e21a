"""Records what the agents of simulated nodes would record, each for its own node, and the workloads of the fleet.

An event's id follows from its source, epoch and number, so publishing it again adds nothing; after a restart the
numbering continues where the ledger ends. Events have the real time whatever the speed, because an event must not lie
in the future; only the simulation knows simulated time. No agent may publish workloads, so these have a source of
their own.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from gpuledger.domain.inventory.device_names import place_of
from gpuledger.events.device import (
    Card,
    DeviceErrorsObserved,
    DeviceFailed,
    DeviceHealthChanged,
    DevicePoolApplied,
    DevicePoolRefused,
    DevicePoolReleased,
)
from gpuledger.events.envelope import Decoded, Event, encode, nats_subject_of
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.ids import derived_id
from gpuledger.events.machine_config import NodeConfigReported
from gpuledger.events.node import NodeDevicesObserved, NodeMonitoringObserved
from gpuledger.events.node_sharing import Nic, NodeNicsObserved
from gpuledger.events.payload import Payload
from gpuledger.events.workload import DeviceShare, WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.projection.subject_form import SubjectForm
from gpuledger.runtime.clock import Clock, Sleep
from gpuledger.tools.simulation import monitor
from gpuledger.tools.simulation.allocation import RunningPod, SimulatedPod
from gpuledger.tools.simulation.failures import Remedy, XidError
from gpuledger.tools.simulation.kubernetes import retrying
from gpuledger.tools.simulation.names import workload_of

OUTBOX_MAX: Final = 1_000
"""The most events in the outbox; when it is full, they are published first."""

WORKLOAD_CLASS: Final = "Guaranteed"
"""The QoS class of pods whose limits are their requests."""


WORKLOADS: Final = "/import/simulation"
"""The event source of the fleet's workloads."""


def source_of(node: str) -> str:
    """The event source of a node's agent."""
    return f"/nodes/{node}/agent"


def epoch_of(seed: int) -> str:
    """The epoch of all agents of a simulation; the same seed continues it."""
    return f"simulation-{seed}"


class Agents:
    """Records events of the agents and workloads. `numbers` has the last number of each source; a missing one is 0."""

    def __init__(self, ledger: Ledger, epoch: str, numbers: Mapping[str, int], *, clock: Clock, sleep: Sleep) -> None:
        self._ledger = ledger
        self._form = SubjectForm(ledger)
        self._epoch = epoch
        self._numbers = dict(numbers)
        self._clock = clock
        self._sleep = sleep
        self._outbox: list[Outgoing] = []

    async def observed(self, node: str, cards: Iterable[Card]) -> None:
        """Record the node's cards."""
        await self._record(node, node, NodeDevicesObserved(cards=tuple(cards)))

    async def nics_observed(self, node: str, nics: Iterable[Nic]) -> None:
        """Record the node's network cards with RDMA."""
        await self._record(node, node, NodeNicsObserved(nics=tuple(nics)))

    async def failed(self, node: str, card: Card, kind: str, message: str) -> None:
        """Record the failure of a card."""
        slot = place_of(node, card.pci_address)
        await self._record(node, _card(node, card), DeviceFailed(kind=kind, slot=slot, message=message))

    async def errors_observed(self, node: str, card: Card, kind: str, message: str) -> None:
        """Record an error of an application that leaves the card usable."""
        data = DeviceErrorsObserved(kind=kind, cause="application", first_at=self._clock(), message=message)
        await self._record(node, _card(node, card), data)

    async def unhealthy(self, node: str, card: Card, kind: str, message: str) -> None:
        """Record that a card can no longer be used."""
        await self._record(node, _card(node, card), DeviceHealthChanged(healthy=False, kind=kind, message=message))

    async def healthy(self, node: str, card: Card) -> None:
        """Record that a card can be used again."""
        await self._record(node, _card(node, card), DeviceHealthChanged(healthy=True))

    async def reported(self, node: str, card: Card, xid: XidError, remedy: Remedy) -> None:
        """Record what the node's monitor of the system log reports of a failed card."""
        await self._record(node, node, monitor.fault(card, xid, remedy))

    async def reported_healthy(self, node: str, card: Card) -> None:
        """Record that the node's monitor of the system log has the card healthy again."""
        await self._record(node, node, monitor.recovery(card))

    async def check_reported(self, node: str, report: NodeHealthReported) -> None:
        """Record what a preflight check of a pod reports over the node's socket."""
        await self._record(node, node, report)

    async def config_reported(self, node: str, report: NodeConfigReported, time: datetime) -> None:
        """Record what the node's agent of machine configuration has reported at this time."""
        await self._put(source_of(node), node, report, time)

    async def heart_beat(self, node: str) -> None:
        """Record a heartbeat of the node's exporter."""
        await self._record(node, node, NodeMonitoringObserved(fresh=True, updated_at=self._clock()))

    async def pool_applied(self, node: str, device: str, pool: str, partitions: int | None) -> None:
        """Record that a device is set up for a pool."""
        await self._record(node, device, DevicePoolApplied(pool=pool, partitions=partitions))

    async def pool_refused(self, node: str, device: str, pool: str, reason: str, message: str) -> None:
        """Record that a device cannot be set up for a pool."""
        await self._record(node, device, DevicePoolRefused(pool=pool, reason=reason, message=message))

    async def pool_released(self, node: str, device: str, pool: str) -> None:
        """Record that a device has left its pool."""
        await self._record(node, device, DevicePoolReleased(pool=pool))

    async def scheduled(self, running_pod: RunningPod, submitted_at: datetime) -> None:
        """Record the submission and the scheduling of a pod."""
        pod, subject = running_pod.pod, workload_of(running_pod.pod.name)
        await self._record_workload(subject, _submission(pod), submitted_at)
        shares = tuple(DeviceShare(device=share.card, gpu_milli=share.gpu_milli) for share in running_pod.shares)
        scheduled = WorkloadScheduled(gpu_milli=pod.gpu_milli, node=running_pod.node, devices=shares)
        await self._record_workload(subject, scheduled)

    async def ended(self, pod: str, outcome: str) -> None:
        """Record the end of a pod."""
        await self._record_workload(workload_of(pod), WorkloadEnded(outcome=outcome))

    async def flush(self) -> None:
        """Publish the outbox, however long the ledger is away."""
        if self._outbox:
            await retrying(self._publish, sleep=self._sleep)
            self._outbox = []

    async def _publish(self) -> None:
        await self._ledger.publish_many(await self._form.of(self._outbox))

    async def _record(self, node: str, subject: str, data: Payload) -> None:
        await self._put(source_of(node), subject, data, self._clock())

    async def _record_workload(self, subject: str, data: Payload, time: datetime | None = None) -> None:
        await self._put(WORKLOADS, subject, data, time or self._clock())

    async def _put(self, source: str, subject: str, data: Payload, time: datetime) -> None:
        if len(self._outbox) >= OUTBOX_MAX:
            await self.flush()
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        event = self._event(source, number, subject, data, time)
        self._outbox.append(Outgoing(nats_subject_of(event), event.id, encode(event)))

    def _event(self, source: str, number: int, subject: str, data: Payload, time: datetime) -> Decoded:
        event_id = derived_id(f"{source}#{self._epoch}#{number}", data.TYPE, subject)
        return Event(event_id, source, data.TYPE, subject, time, data, self._epoch, number)


def _card(node: str, card: Card) -> str:
    return card.uuid or place_of(node, card.pci_address)


def _submission(pod: SimulatedPod) -> WorkloadSubmitted:
    return WorkloadSubmitted(gpu_milli=pod.gpu_milli, owner=pod.owner or None, workload_class=WORKLOAD_CLASS)
