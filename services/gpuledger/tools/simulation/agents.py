"""The agents of the simulated nodes: what they say, each for its own node, goes into the ledger as from real ones.

An event's id follows from its source, epoch and number, so that publishing again adds nothing; the numbering goes on
where the ledger's record of it ends. Facts happen now: their `time` is the real one whatever the speed, because a fact
must not lie in the future, and simulated time is known to the simulation alone.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from gpuledger.domain.inventory.device_names import place_of
from gpuledger.events.device import (
    Card,
    DeviceFailed,
    DeviceHealthChanged,
    DevicePoolApplied,
    DevicePoolRefused,
    DevicePoolReleased,
)
from gpuledger.events.envelope import Decoded, Event, encode, nats_subject_of
from gpuledger.events.ids import derived_id
from gpuledger.events.node import NodeDevicesObserved, NodeMonitoringObserved
from gpuledger.events.payload import Payload
from gpuledger.events.workload import DeviceShare, WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.runtime.clock import Clock, Sleep
from gpuledger.tools.simulation.allocation import Held, Pod
from gpuledger.tools.simulation.names import workload_of
from gpuledger.tools.simulation.patience import patiently

OUTBOX_MAX: Final = 1_000
"""Events that wait for publishing; before one more is taken, they are published."""

WORKLOAD_CLASS: Final = "Guaranteed"
"""The QoS class of pods whose limits are their requests."""


def source_of(node: str) -> str:
    """The source that a node's agent is."""
    return f"/nodes/{node}/agent"


def epoch_of(seed: int) -> str:
    """The epoch of all agents of a simulation; the same seed continues it."""
    return f"simulation-{seed}"


class Agents:
    """Says what the agents see. `numbers` are the last number of each node's agent, 0 where it is not there."""

    def __init__(self, ledger: Ledger, epoch: str, numbers: Mapping[str, int], *, clock: Clock, sleep: Sleep) -> None:
        self._ledger = ledger
        self._epoch = epoch
        self._numbers = dict(numbers)
        self._clock = clock
        self._sleep = sleep
        self._outbox: list[Outgoing] = []

    async def observed(self, node: str, cards: Iterable[Card]) -> None:
        """These are the node's cards now."""
        await self._say(node, node, NodeDevicesObserved(cards=tuple(cards)))

    async def failed(self, node: str, card: Card, kind: str, message: str) -> None:
        """A card of the node failed."""
        slot = place_of(node, card.pci_address)
        await self._say(node, _card(node, card), DeviceFailed(kind=kind, slot=slot, message=message))

    async def unhealthy(self, node: str, card: Card, kind: str, message: str) -> None:
        """A card of the node cannot be used any more."""
        await self._say(node, _card(node, card), DeviceHealthChanged(healthy=False, kind=kind, message=message))

    async def healthy(self, node: str, card: Card) -> None:
        """A card of the node can be used again."""
        await self._say(node, _card(node, card), DeviceHealthChanged(healthy=True))

    async def heart_beat(self, node: str) -> None:
        """The node's exporter has just renewed its metrics."""
        await self._say(node, node, NodeMonitoringObserved(fresh=True, updated_at=self._clock()))

    async def pool_applied(self, node: str, device: str, pool: str, partitions: int | None) -> None:
        """A device of the node is set up for a pool."""
        await self._say(node, device, DevicePoolApplied(pool=pool, partitions=partitions))

    async def pool_refused(self, node: str, device: str, pool: str, reason: str, message: str) -> None:
        """A device of the node cannot be set up for a pool."""
        await self._say(node, device, DevicePoolRefused(pool=pool, reason=reason, message=message))

    async def pool_released(self, node: str, device: str, pool: str) -> None:
        """A device of the node is free of a pool."""
        await self._say(node, device, DevicePoolReleased(pool=pool))

    async def scheduled(self, held: Held, submitted_at: datetime) -> None:
        """A pod that was created at some time runs here now."""
        pod, subject = held.pod, workload_of(held.pod.name)
        await self._say(held.node, subject, _submission(pod), submitted_at)
        shares = tuple(DeviceShare(device=share.card, gpu_milli=share.gpu_milli) for share in held.shares)
        scheduled = WorkloadScheduled(gpu_milli=pod.gpu_milli, node=held.node, devices=shares)
        await self._say(held.node, subject, scheduled)

    async def ended(self, node: str, pod: str, outcome: str) -> None:
        """A pod that ran on the node is over."""
        await self._say(node, workload_of(pod), WorkloadEnded(outcome=outcome))

    async def flush(self) -> None:
        """Publish what was said, however long the ledger is away."""
        if self._outbox:
            await patiently(lambda: self._ledger.publish_many(self._outbox), sleep=self._sleep)
            self._outbox = []

    async def _say(self, node: str, subject: str, data: Payload, time: datetime | None = None) -> None:
        if len(self._outbox) >= OUTBOX_MAX:
            await self.flush()
        number = self._numbers[node] = self._numbers.get(node, 0) + 1
        event = self._event(source_of(node), number, subject, data, time or self._clock())
        self._outbox.append(Outgoing(nats_subject_of(event), event.id, encode(event)))

    def _event(self, source: str, number: int, subject: str, data: Payload, time: datetime) -> Decoded:
        event_id = derived_id(f"{source}#{self._epoch}#{number}", data.TYPE, subject)
        return Event(event_id, source, data.TYPE, subject, time, data, self._epoch, number)


def _card(node: str, card: Card) -> str:
    return card.uuid or place_of(node, card.pci_address)


def _submission(pod: Pod) -> WorkloadSubmitted:
    return WorkloadSubmitted(gpu_milli=pod.gpu_milli, owner=pod.owner or None, workload_class=WORKLOAD_CLASS)
