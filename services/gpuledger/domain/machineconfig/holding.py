"""Which nodes hold allocated devices, from agents' allocations and from pods that request GPUs. Pure.

An allocation is what a kubelet gave a container; a pod counts from where it has a node, before its kubelet says so. An
idle node is one that nobody here names.
"""

from sys import intern
from typing import Final

from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.machineconfig.rows import ConfigHolderRow
from gpuledger.domain.machineconfig.state import Rollout
from gpuledger.events.allocation import AllocationEnded, AllocationObserved
from gpuledger.events.payload import Payload
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.events.sharing import PodSharingGone, PodSharingObserved

ALLOCATION, UNITS, SHARES = "allocation", "units", "shares"
"""The kinds of holder, so that ids of different aggregates stay apart."""

_KINDS: Final[dict[type[Payload], str]] = {
    AllocationObserved: ALLOCATION,
    AllocationEnded: ALLOCATION,
    PodObserved: UNITS,
    PodGone: UNITS,
    PodSharingObserved: SHARES,
    PodSharingGone: SHARES,
}


def holds_devices(state: Rollout, node: str) -> bool:
    """Whether anybody holds devices of a node."""
    return bool(state.holder.by["node"].get(node))


def _allocation_observed(state: Rollout, fact: Fact, data: AllocationObserved) -> None:
    _put(state, fact, data.node if data.resources or data.claims else None)


def _pod_observed(state: Rollout, fact: Fact, data: PodObserved) -> None:
    _put(state, fact, data.node if any(data.requests.values()) else None)


def _sharing_observed(state: Rollout, fact: Fact, data: PodSharingObserved) -> None:
    _put(state, fact, data.node)


def _ended(state: Rollout, fact: Fact, _data: Payload) -> None:
    _put(state, fact, None)


def _put(state: Rollout, fact: Fact, node: str | None) -> None:
    holder = f"{_KINDS[type(fact.event.data)]}/{fact.event.subject}"
    before = state.holder.get(holder)
    if before is not None and before.node != node:
        state.holder.delete(holder)  # The index by node needs a row of its own for each.
    if node is not None and (before is None or before.node != node):
        state.holder.put(ConfigHolderRow(holder, intern(node)))


HOLDING_HANDLERS: Handlers = {
    AllocationObserved: _allocation_observed,
    AllocationEnded: _ended,
    PodObserved: _pod_observed,
    PodGone: _ended,
    PodSharingObserved: _sharing_observed,
    PodSharingGone: _ended,
}
