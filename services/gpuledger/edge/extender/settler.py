"""Brings reservations to their ends: asks Kubernetes what came of the pod, and records it.

A reservation stays, and nobody else gets its devices, until Kubernetes has answered. What is history is recorded alone:
nothing of it is changed in the cluster.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from gpuledger.domain.quarantine.freshness import is_fresh
from gpuledger.edge.effects.tools import EffectTools
from gpuledger.edge.extender import metrics
from gpuledger.edge.extender.cluster import PodWriter
from gpuledger.edge.extender.holdings import Holdings
from gpuledger.edge.extender.records import ReservationRecords
from gpuledger.edge.extender.settings import ExtenderSettings
from gpuledger.edge.extender.settlement import NOT_BOUND, Settlement, settlement
from gpuledger.edge.extender.state import ExtenderState, OpenReservation
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.kube.work_queue import WorkQueue

ExtenderTools = EffectTools[ExtenderSettings]

LEFT_OPEN: Final = "LeftOpen"
"""Why a reservation is released whose process has ended before its pod was bound."""

log = structlog.get_logger("gpuledger.extender")


class Settler:
    """Settles open reservations, also those that nobody works on any more; `is_idle` is whether all had their turn."""

    def __init__(
        self,
        state: ExtenderState,
        records: ReservationRecords,
        writer: PodWriter,
        tools: ExtenderTools,
        is_attempted: Callable[[str], bool],
    ) -> None:
        self._state = state
        self._records = records
        self._writer = writer
        self._tools = tools
        self._is_attempted = is_attempted
        self._queue = WorkQueue[str](asyncio.get_running_loop().time)
        self._failures: dict[str, int] = {}
        self._first: set[str] = set()
        self._settling: set[str] = set()
        self.looked = asyncio.Event()
        self._holdings: Holdings | None = None

    def begin(self, holdings: Holdings) -> None:
        """Queue all that is open: the state is folded to the head of the log."""
        self._holdings = holdings
        self._first = set(self._state.open_reservation.rows)
        for uid in self._first:
            self._queue.add(uid)
        self._look_done(None)

    def add(self, uid: str, pause_s: float = 0.0) -> None:
        """Look at a pod's reservation, after a pause."""
        self._queue.add(uid, self._queue.now_s() + pause_s if pause_s else 0.0)

    def is_settling(self, uid: str) -> bool:
        """Whether a worker is finding out what becomes of a pod's reservation: nobody is to go on with it."""
        return uid in self._settling

    async def run(self) -> None:
        """Work for ever."""
        while True:
            uid = await self._queue.take()
            try:
                await self._work_on(uid)
            finally:
                self._queue.done(uid)

    async def settle(self, reservation: OpenReservation, reason: str, message: str) -> Settlement:
        """Record what came of a reservation; the reason is for a pod that is not bound for no other one.

        Raises:
            KubeError: Kubernetes does not say, so the reservation stays.
        """
        assert self._holdings is not None, "the state is folded"
        namespace, _, name = reservation.pod.partition("/")
        pod = await self._writer.get(namespace, name)
        reserved = self._holdings.allocation(reservation.uid)
        found = settlement(reservation.uid, reservation.node, reserved, pod, self._tools.settings.names)
        if found.reason == NOT_BOUND:
            found = found._replace(reason=reason, message=message)
        if found.is_bound:
            await self._records.bound(reservation)
            metrics.SETTLED.labels("bound").inc()
            return found
        if found.removes and pod is not None and self._is_fresh(reservation):
            await self._writer.remove_annotation(namespace, name, reservation.uid, pod.allocated or "")
        await self._records.released(reservation, found.reason, found.message)
        metrics.SETTLED.labels("released").inc()
        return found

    async def _work_on(self, uid: str) -> None:
        reservation = self._state.open(uid)
        if reservation is None or self._is_attempted(uid):
            self._failures.pop(uid, None)
            self._look_done(uid)
            return
        if (pause_s := self._pause_s(reservation)) > 0:
            self._look_done(uid)
            self._queue.add(uid, self._queue.now_s() + pause_s)
            return
        self._settling.add(uid)
        try:
            message = "The process that reserved the devices has ended before it bound the pod."
            found = await self.settle(reservation, LEFT_OPEN, message)
        except KubeError as error:
            failures = self._failures[uid] = self._failures.get(uid, 0) + 1
            pause_s = self._tools.settings.settle_backoff.pause_s(failures, self._tools.jitter())
            log.warning("extender.unsettled", pod=reservation.pod, reason=str(error), retry_s=round(pause_s, 3))
            self._queue.add(uid, self._queue.now_s() + pause_s)
            return
        finally:
            self._settling.remove(uid)
        log.info("extender.settled", pod=reservation.pod, node=reservation.node, reason=found.reason or "bound")
        self._failures.pop(uid, None)
        self._look_done(uid)

    def _pause_s(self, reservation: OpenReservation) -> float:
        """Until when another process may still be about to bind the pod."""
        age_s = (self._tools.clock() - reservation.reserved_at).total_seconds()
        longest_s = self._tools.settings.predecessor_max_s
        return min(longest_s - age_s, longest_s)

    def _is_fresh(self, reservation: OpenReservation) -> bool:
        times = (reservation.reserved_at, reservation.recorded_at)
        is_new = is_fresh(self._tools.clock(), self._tools.settings.max_age, *times)
        return is_new and not reservation.imported

    def _look_done(self, uid: str | None) -> None:
        self._first.discard(uid or "")
        if not self._first:
            self.looked.set()
