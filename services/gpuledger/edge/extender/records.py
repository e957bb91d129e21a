"""Records what the extender does: a reservation, and what came of it; and waits until the fold has it.

A reservation holds as of its place in the log: where two processes ever reserve the same devices, the log's order says
who came first, and the fold shows it to both.
"""

import asyncio
from datetime import datetime
from typing import NamedTuple

from gpuledger.domain.sharing.model import Allocation, NodeState
from gpuledger.edge.extender import metrics
from gpuledger.edge.extender.node_shares import NodeShares, recorded
from gpuledger.edge.extender.pods import SchedulablePod
from gpuledger.edge.extender.state import ExtenderState, OpenReservation
from gpuledger.edge.extender.wire import BindingArgs
from gpuledger.edge.outcomes import OutcomeRecorder
from gpuledger.events.payload import Payload, truncated
from gpuledger.events.sharing import PodDevicesBound, PodDevicesReleased, PodDevicesReserved
from gpuledger.runtime.clock import NewId, random_id


class ReservationCause(NamedTuple):
    """A reservation as what an outcome follows from; `node` is what outcomes are about, the pod."""

    node: str
    intent: str
    time: datetime
    correlation: str


class ReservationRecords:
    """Records reservations and their outcomes; `folded` is to be called after each batch of the fold."""

    def __init__(self, state: ExtenderState, recorder: OutcomeRecorder, new_id: NewId = random_id) -> None:
        self._state = state
        self._recorder = recorder
        self._new_id = new_id
        self._shares = NodeShares(state)
        self._beginning: dict[str, asyncio.Event] = {}
        self._ending: dict[str, tuple[OpenReservation, asyncio.Event]] = {}

    async def reserve(
        self, args: BindingArgs, pod: SchedulablePod, allocation: Allocation, strategy: str, node: NodeState
    ) -> None:
        """Return once the ledger has the reservation, and the fold has it from there; it may be over by then.

        With it goes what all pods hold of the node, for the node's agent, which is to know it before its kubelet asks.
        It is not earlier than the last release of the pod, whatever the clock says: that would end it.

        Raises:
            EventRefusedError: the ledger will never take it.
        """
        event_id = self._new_id()
        data = PodDevicesReserved(
            uid=args.uid,
            node=args.node,
            requests=dict(pod.amounts),
            allocation=recorded(allocation),
            strategy=strategy,
        )
        folded = self._beginning[event_id] = asyncio.Event()
        shares = self._shares.of(node, pod)
        before = self._state.pod(args.uid)
        facts = [(args.pod, data, event_id), (args.node, shares, self._new_id())]
        try:
            await self._recorder.record_together(facts, None if before is None else before.released_at)
            await folded.wait()
        finally:
            del self._beginning[event_id]

    async def bound(self, reservation: OpenReservation) -> None:
        """Return once the ledger has that the pod is bound."""
        await self._record(reservation, PodDevicesBound(uid=reservation.uid, node=reservation.node))

    async def released(self, reservation: OpenReservation, reason: str, message: str) -> None:
        """Return once the ledger has that the pod does not get the devices, and the fold has it from there."""
        data = PodDevicesReleased(uid=reservation.uid, node=reservation.node, reason=reason, message=truncated(message))
        await self._record(reservation, data)
        if self._is_open(reservation):
            _, folded = self._ending.setdefault(reservation.event, (reservation, asyncio.Event()))
            await folded.wait()
        metrics.UNDONE.labels(reason).inc()

    def folded(self) -> None:
        """Tell those who wait what the fold has now."""
        for event in self._state.take_reserved():
            if event in self._beginning:
                self._beginning[event].set()
        for reservation, folded in list(self._ending.values()):
            if not self._is_open(reservation):
                del self._ending[reservation.event]
                folded.set()

    async def _record(self, reservation: OpenReservation, data: Payload) -> None:
        cause = ReservationCause(reservation.pod, reservation.event, reservation.reserved_at, reservation.correlation)
        await self._recorder.record(cause, data)

    def _is_open(self, reservation: OpenReservation) -> bool:
        found = self._state.open(reservation.uid)
        return found is not None and found.event == reservation.event
