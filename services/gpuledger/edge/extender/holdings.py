"""The nodes with what pods hold of them: what the ledger has, and what was chosen and is not recorded yet.

Between choosing devices and folding the reservation's event, the choice has to count already, or two pods would get the
same devices. Everything here happens without a pause, so that nobody sees a choice half made.
"""

from collections.abc import Iterator, Mapping, Set
from datetime import datetime, timedelta

from gpuledger.domain.sharing.model import Allocated, Allocation, NodeState, PodRequest, Refusal
from gpuledger.domain.sharing.node_states import NodeStates
from gpuledger.domain.sharing.placement import Placement
from gpuledger.domain.sharing.preemption import Evictable
from gpuledger.domain.sharing.rows import NO_ALLOCATION, PodState
from gpuledger.domain.sharing.texts import allocation_of
from gpuledger.edge.extender.state import ExtenderState

STARTED_OR_GONE = frozenset({PodState.RUNNING.value, PodState.GONE.value})


class Holdings:
    """The nodes that share devices, as of the last `refresh` and everything chosen since."""

    def __init__(self, state: ExtenderState) -> None:
        self._state = state
        self._states = NodeStates(state.sharing)
        self._chosen: dict[str, tuple[str, Allocation]] = {}
        self.placement = Placement(self._states.nodes)

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """The nodes by name."""
        return self._states.nodes

    def refresh(self) -> tuple[str, ...]:
        """Follow what was folded since the last call; returns the UIDs of the pods that it concerns."""
        touched = self._states.refresh()
        for uid, (node, allocation) in self._chosen.items():
            self._hold(uid, node, allocation)
        return touched.pods

    def choose(self, uid: str, node: str, request: PodRequest, strategy: str) -> Allocation | Refusal:
        """Choose devices of a node for a pod, which nobody else gets until `forget`, or the ledger says so."""
        found = self.placement.allocation(request, node, strategy)
        if isinstance(found, Refusal):
            return found
        state = self.nodes[node]
        allocation = with_ids(found, state)
        self._chosen[uid] = (node, allocation)
        state.hold(uid, allocation)
        return allocation

    def forget(self, uid: str) -> None:
        """The ledger has the choice now, or it came to nothing: what the ledger has of the pod is all that counts."""
        chosen = self._chosen.pop(uid, None)
        row = self._state.pod(uid)
        if chosen is None or (row is not None and row.node == chosen[0] and row.allocation != NO_ALLOCATION):
            return
        node = self.nodes.get(chosen[0])
        if node is not None:
            node.release(uid)

    def is_oversold(self, node: str, allocation: Allocation) -> bool:
        """Whether the devices of an allocation are gone or replaced, or pods hold more of one than it has."""
        state = self.nodes.get(node)
        return state is None or any(
            _is_oversold(state, kind, one) for kind, devices in allocation.items() for one in devices
        )

    def is_held(self, uid: str, node: str) -> bool:
        """Whether a pod holds devices of a node, as the ledger has it or by a choice that is not recorded yet."""
        state = self.nodes.get(node)
        return state is not None and uid in state.holders

    def in_flight(self, node: str, besides: str, since: datetime) -> str | None:
        """The pod that was given to a node, and of which no container has started; older ones than `since` are over."""
        state = self.nodes.get(node)
        for uid in () if state is None else state.holders:
            row = self._state.pod(uid)
            if uid == besides or (row is not None and row.state in STARTED_OR_GONE):
                continue
            if self._states.has_without_allocation(node, uid):
                continue
            given_at = None if row is None else row.bound_at or row.reserved_at or row.observed_at
            if given_at is None or given_at >= since:
                return uid if row is None else row.pod
        return None

    def evictable(self, node: str, kinds: Set[str], below: int) -> Iterator[Evictable]:
        """The pods of lower priority that hold devices of some types, and run on the node: the scheduler has them."""
        state = self.nodes.get(node)
        for uid, allocation in {} if state is None else state.holders.items():
            row = self._state.pod(uid)
            if row is not None and row.observed_node == node and row.priority < below and kinds & allocation.keys():
                yield Evictable(uid, row.priority, row.first_at)

    def priority(self, uid: str) -> int | None:
        """The priority of a pod that watchers have seen."""
        row = self._state.pod(uid)
        return None if row is None or row.observed_at is None else row.priority

    def allocation(self, uid: str) -> Allocation:
        """What was reserved for a pod, as the ledger has it."""
        row = self._state.pod(uid)
        return {} if row is None or row.reservation is None else allocation_of(row.reservation)

    def _hold(self, uid: str, node: str, allocation: Allocation) -> None:
        state = self.nodes.get(node)
        if state is not None and uid not in state.holders:
            state.hold(uid, allocation)


def with_ids(allocation: Allocation, node: NodeState) -> Allocation:
    """The allocation with the id of each device that has one."""
    return {kind: tuple(_with_id(one, kind, node) for one in devices) for kind, devices in allocation.items()}


def in_flight_since(now: datetime, in_flight_max_s: float) -> datetime:
    """What was given to a node before this is no longer in flight."""
    return now - timedelta(seconds=in_flight_max_s)


def _with_id(one: Allocated, kind: str, node: NodeState) -> Allocated:
    device = node.devices.get(kind, {}).get(one.minor)
    return one if one.id or device is None else one._replace(id=device.id)


def _is_oversold(node: NodeState, kind: str, one: Allocated) -> bool:
    device = node.devices.get(kind, {}).get(one.minor)
    if device is None or not device.healthy or (one.id and device.id and one.id != device.id):
        return True
    used = node.used.get(kind, {}).get(one.minor, {})
    if any(used.get(resource, 0) > device.resources.get(resource, 0) for resource in one.resources):
        return True
    others = [held for holder in node.holders.values() for held in holder.get(kind, ()) if held.minor == one.minor]
    functions = [function.bus_id for held in others for function in held.functions]
    return len(functions) != len(set(functions))
