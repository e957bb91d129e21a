"""Binds pods: reserves devices in the ledger, writes the annotation, binds, and undoes all of it where a step fails.

An extender has no Reserve: kube-scheduler asks about many pods before it binds one, so devices are chosen here, at once
and for good. A pod is worked on by one attempt at a time; an attempt goes on when its caller has gone, until it is done
or its time is over, so that nothing is left half done.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final

import structlog

from gpuledger.domain.sharing.annotation import write_allocation
from gpuledger.domain.sharing.model import Allocation, PodRequest, Refusal
from gpuledger.domain.sharing.rows import PodState
from gpuledger.edge.extender.cluster import PodWriter
from gpuledger.edge.extender.demand import SeenPods, demand_of
from gpuledger.edge.extender.errors import BindError
from gpuledger.edge.extender.holdings import Holdings, in_flight_since
from gpuledger.edge.extender.pods import SchedulablePod
from gpuledger.edge.extender.records import ReservationRecords
from gpuledger.edge.extender.settlement import BOUND_BY_OTHERS, BOUND_ELSEWHERE, POD_GONE
from gpuledger.edge.extender.settler import ExtenderTools, Settler
from gpuledger.edge.extender.state import ExtenderState
from gpuledger.edge.extender.wire import BindingArgs
from gpuledger.edge.kube.errors import ConflictError, KubeError, NotFoundError
from gpuledger.ledger.errors import EventRefusedError
from gpuledger.runtime.tasks import end

BUSY: Final = "Busy"
NO_ROOM: Final = "NoRoom"
INVALID: Final = "InvalidRequest"
IN_FLIGHT: Final = "AnotherPodInFlight"
TAKEN: Final = "DevicesTaken"
TIMED_OUT: Final = "TimedOut"
NOT_RECORDED: Final = "NotRecorded"
NOT_ANNOTATED: Final = "NotAnnotated"
NOT_BINDABLE: Final = "NotBindable"
UNKNOWN: Final = "OutcomeUnknown"

ON_NODE: Final = frozenset({PodState.BOUND.value, PodState.RUNNING.value})

log = structlog.get_logger("gpuledger.extender")


class Binder:
    """Binds pods for one leader."""

    def __init__(
        self,
        state: ExtenderState,
        holdings: Holdings,
        records: ReservationRecords,
        settler: Settler,
        writer: PodWriter,
        seen: SeenPods,
        tools: ExtenderTools,
    ) -> None:
        self._state = state
        self._holdings = holdings
        self._records = records
        self._settler = settler
        self._writer = writer
        self._seen = seen
        self._tools = tools
        self._settings = tools.settings
        self._slots = asyncio.Semaphore(tools.settings.binds_at_once_max)
        self._attempts: dict[str, tuple[BindingArgs, asyncio.Task[None]]] = {}
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_attempted(self, uid: str) -> bool:
        """Whether an attempt at binding the pod is under way."""
        return uid in self._attempts

    async def bind(self, args: BindingArgs) -> None:
        """Return once the pod is bound to the node; the same call again gives the same answer.

        Raises:
            BindError: it is not bound, or not known to be.
        """
        running = self._attempts.get(args.uid)
        if running is not None and running[0] != args:
            raise BindError(BUSY, f"the pod is being bound to the node {running[0].node}; try again")
        if running is None:
            if self._settler.is_settling(args.uid):
                raise BindError(BUSY, "what an earlier attempt reserved for the pod is being settled; try again")
            if len(self._attempts) >= self._settings.binds_waiting_max:
                raise BindError(BUSY, f"{len(self._attempts)} pods wait to be bound; try again")
            task = asyncio.create_task(self._attempt(args))
            running = self._attempts[args.uid] = (args, task)
            task.add_done_callback(lambda ended: self._ended(args.uid, ended))
        await self._outcome(running[1])

    async def run(self) -> None:
        """End the attempts with the leadership, and the leadership with an attempt that failed unexpectedly."""
        try:
            await self._broken
        finally:
            await end([task for _, task in self._attempts.values()])

    def _ended(self, uid: str, task: "asyncio.Task[None]") -> None:
        del self._attempts[uid]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BindError) and self._state.open(uid) is not None:
            self._settler.add(uid, self._settings.settle_backoff.first_s)
        if error is not None and not isinstance(error, BindError) and not self._broken.done():
            self._broken.set_exception(error)

    async def _outcome(self, task: "asyncio.Task[None]") -> None:
        done, _ = await asyncio.wait([task], timeout=self._settings.answer_timeout_s)
        if not done:
            seconds = self._settings.answer_timeout_s
            raise BindError(TIMED_OUT, f"the pod is not bound within {seconds:g} s; this is being undone")
        if task.cancelled():
            raise BindError(UNKNOWN, "this extender no longer leads; try again")
        task.result()

    async def _attempt(self, args: BindingArgs) -> None:
        deadline_s = asyncio.get_running_loop().time() + self._settings.attempt_max_s
        async with self._slots:
            if self._is_bound(args):
                return
            if asyncio.get_running_loop().time() > deadline_s:
                raise BindError(TIMED_OUT, "too many pods were to be bound before this one; try again")
            await self._leave_other_node(args)
            self._check_not_bound(args)
            pod = await self._pod(args)
            request = demand_of(pod)
            if isinstance(request, Refusal):
                raise BindError(INVALID, request.reason)
            if request is None:
                await self._bind_without_devices(args)
                return
            allocation = await self._reserved(args, pod, request)
            if hindrance := self._hindrance(args, allocation, deadline_s):
                await self._undo(args, *hindrance)
            else:
                await self._carry_out(args, pod, allocation, deadline_s)
            self._seen.forget(args.uid)

    def _is_bound(self, args: BindingArgs) -> bool:
        """Whether the ledger has it that the pod is bound with what was reserved."""
        row = self._state.pod(args.uid)
        is_on_node = row is not None and row.state in ON_NODE and row.node == row.reserved_node == args.node
        return is_on_node and self._state.open(args.uid) is None

    def _check_not_bound(self, args: BindingArgs) -> None:
        """A pod that is on a node already keeps what it has there, and its annotation."""
        row = self._state.pod(args.uid)
        if row is not None and row.state in ON_NODE and self._state.open(args.uid) is None:
            reason = BOUND_BY_OTHERS if row.node == args.node else BOUND_ELSEWHERE
            raise BindError(reason, f"the pod is bound to the node {row.node} already")

    async def _leave_other_node(self, args: BindingArgs) -> None:
        """Settle what was reserved on another node: the scheduler has chosen anew."""
        open_ = self._state.open(args.uid)
        if open_ is None or open_.node == args.node:
            return
        message = f"The scheduler has chosen the node {args.node} instead."
        try:
            found = await self._settler.settle(open_, "ChosenAnew", message)
        except KubeError as error:
            self._settler.add(args.uid, self._settings.settle_backoff.first_s)
            raise BindError(UNKNOWN, f"what became of the pod on the node {open_.node} is unknown: {error}") from error
        if found.is_bound:
            raise BindError(BOUND_ELSEWHERE, f"the pod is bound to the node {open_.node} already")

    async def _pod(self, args: BindingArgs) -> SchedulablePod:
        pod = self._seen.get(args.uid)
        if pod is None:
            try:
                pod = await self._writer.get(args.namespace, args.name)
            except KubeError as error:
                raise BindError(UNKNOWN, str(error)) from error
        if pod is None or pod.uid != args.uid or pod.is_over:
            raise BindError(POD_GONE, "the pod is gone")
        return pod

    async def _reserved(self, args: BindingArgs, pod: SchedulablePod, request: PodRequest) -> Allocation:
        """Reserve devices, or take those that were reserved before: an earlier attempt did not come further."""
        if self._state.open(args.uid) is not None:
            return self._holdings.allocation(args.uid)
        return await self._newly_reserved(args, pod, request)

    def _hindrance(self, args: BindingArgs, reserved: Allocation, deadline_s: float) -> tuple[str, str] | None:
        """Why a reservation cannot be carried out, as reason and message: much may be recorded until it is."""
        if self._state.open(args.uid) is None:
            return POD_GONE, "the pod ended while devices were being reserved for it"
        if not self._holdings.is_held(args.uid, args.node):
            return TAKEN, "the ledger has something later of the pod, or the node shares no devices any more; try again"
        if self._holdings.is_oversold(args.node, reserved):
            return TAKEN, "another process has reserved the devices meanwhile, or they are gone; try again"
        if asyncio.get_running_loop().time() > deadline_s:
            return TIMED_OUT, "the ledger took too long to record the reservation; try again"
        return None

    async def _newly_reserved(self, args: BindingArgs, pod: SchedulablePod, request: PodRequest) -> Allocation:
        self._check_in_flight(args)
        found = self._holdings.choose(args.uid, args.node, request, self._settings.strategy)
        if isinstance(found, Refusal):
            raise BindError(NO_ROOM, f"{args.node}: {found.reason}")
        try:
            node = self._holdings.nodes[args.node]
            await self._records.reserve(args, pod, found, self._settings.strategy, node)
        except EventRefusedError as error:
            raise BindError(NOT_RECORDED, str(error)) from error
        finally:
            self._holdings.forget(args.uid)
        return found

    def _check_in_flight(self, args: BindingArgs) -> None:
        if not self._settings.one_in_flight:
            return
        since = in_flight_since(self._tools.clock(), self._settings.in_flight_max_s)
        if other := self._holdings.in_flight(args.node, args.uid, since):
            reason = f"{args.node}: the pod {other} was given to it before, and has not started; one comes at a time"
            raise BindError(IN_FLIGHT, reason)

    async def _carry_out(
        self, args: BindingArgs, pod: SchedulablePod, allocation: Allocation, deadline_s: float
    ) -> None:
        text = self._text(args.node, allocation)
        writing = self._writer.annotate(pod, text)
        if not await self._stepped(args, writing, NOT_ANNOTATED):
            return
        if asyncio.get_running_loop().time() > deadline_s:
            await self._undo(args, TIMED_OUT, "writing the annotation took too long")
        binding = self._writer.bind(args.namespace, args.name, args.uid, args.node)
        if not await self._stepped(args, binding, NOT_BINDABLE):
            return
        reservation = self._state.open(args.uid)
        if reservation is not None:
            await self._records.bound(reservation)

    async def _stepped(self, args: BindingArgs, step: Awaitable[None], reason: str) -> bool:
        """Whether to go on after a step; it undoes all where the step failed, and does not where it is done already."""
        try:
            await step
        except NotFoundError:
            await self._undo(args, POD_GONE, "the pod is gone")
        except KubeError as error:
            await self._undo(args, reason, str(error))
        else:
            return True
        return False

    async def _undo(self, args: BindingArgs, reason: str, message: str) -> None:
        """Settle the reservation; returns where the pod turns out to be bound after all.

        Raises:
            BindError: it is not bound.
        """
        open_ = self._state.open(args.uid)
        if open_ is None:
            raise BindError(reason, message)
        try:
            found = await self._settler.settle(open_, reason, message)
        except KubeError as error:
            self._settler.add(args.uid, self._settings.settle_backoff.first_s)
            raise BindError(UNKNOWN, f"{message}; what became of the pod is unknown: {error}") from error
        if not found.is_bound:
            log.warning("extender.undone", pod=args.pod, node=args.node, reason=found.reason, message=found.message)
            raise BindError(found.reason, found.message)

    async def _bind_without_devices(self, args: BindingArgs) -> None:
        try:
            await self._writer.bind(args.namespace, args.name, args.uid, args.node)
        except ConflictError as error:
            pod = await self._pod_again(args)
            if pod is None or pod.node != args.node:
                raise BindError(NOT_BINDABLE, str(error)) from error
        except KubeError as error:
            raise BindError(NOT_BINDABLE, str(error)) from error

    async def _pod_again(self, args: BindingArgs) -> SchedulablePod | None:
        try:
            pod = await self._writer.get(args.namespace, args.name)
        except KubeError:
            return None
        return pod if pod is not None and pod.uid == args.uid else None

    def _text(self, node: str, allocation: Allocation) -> str:
        state = self._holdings.nodes.get(node)
        return write_allocation(allocation, {} if state is None else state.devices, self._settings.names)
