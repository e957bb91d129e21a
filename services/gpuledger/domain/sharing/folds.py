"""Folds the facts about shared devices: the latest of each kind counts, whatever the order of recording. Pure.

A node that is gone shares nothing, and nobody holds anything of it; what its pods hold counts again once it is back.
A pod is its UID: a fact that names no pod is about none.
"""

from datetime import datetime
from sys import intern

from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.sharing.checkpoints import checkpoints_of, held_text
from gpuledger.domain.sharing.holding import is_later, settled
from gpuledger.domain.sharing.rows import NO_DEVICES, SharedCheckpoints, SharedNode, SharedPod
from gpuledger.domain.sharing.state import Sharing
from gpuledger.domain.sharing.texts import text_of_allocation, text_of_devices, text_of_not_shared
from gpuledger.events.node import NodeGone
from gpuledger.events.position import Offset
from gpuledger.events.runtime import NodeGpuCheckpointsObserved
from gpuledger.events.sharing import (
    NodeDevicesShared,
    PodDevicesBound,
    PodDevicesReleased,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
)

PodPayload = PodSharingObserved | PodSharingGone | PodDevicesReserved | PodDevicesBound | PodDevicesReleased
"""The payloads about a pod."""


def node_row(fact: Fact, data: NodeDevicesShared | NodeGone) -> SharedNode:
    """What a node shares, as one fact alone has it."""
    event = fact.event
    node = intern(event.subject)
    if isinstance(data, NodeGone) or not data.enabled:
        not_shared = NO_DEVICES if isinstance(data, NodeGone) else text_of_not_shared(data)
        return SharedNode(node, False, None, None, NO_DEVICES, not_shared, event.time, fact.sequence)
    return SharedNode(
        node,
        True,
        data.model,
        data.partition_policy,
        text_of_devices(data),
        text_of_not_shared(data),
        event.time,
        fact.sequence,
    )


def pod_row(before: SharedPod | None, fact: Fact, data: PodPayload) -> SharedPod | None:
    """A pod with one more fact; None for one that names no pod."""
    if data.uid is None:
        return None
    row = before or _new_pod(fact, data.uid)
    return settled(_with_fact(row, fact, data))


def _new_pod(fact: Fact, uid: str) -> SharedPod:
    pod = fact.event.subject
    return SharedPod(uid, pod, intern(pod.partition("/")[0]))


def _with_fact(row: SharedPod, fact: Fact, data: PodPayload) -> SharedPod:
    at, position = fact.event.time, fact.sequence
    row = row._replace(first_at=at if row.first_at is None else min(row.first_at, at))
    match data:
        case PodSharingObserved():
            news = is_news(row.observed_at, row.observed_position, fact)
            return _observed(row, fact, data) if news else row
        case PodDevicesReserved():
            news = is_news(row.reserved_at, row.reserved_position, fact)
            return _reserved(row, fact, data) if news else row
        case PodDevicesBound():
            news = is_news(row.bound_at, row.bound_position, fact)
            return row._replace(bound_at=at, bound_position=position) if news else row
        case PodDevicesReleased():
            news = is_news(row.released_at, row.released_position, fact)
            return _released(row, fact, data) if news else row
        case PodSharingGone():
            news = is_news(row.gone_at, row.gone_position, fact)
            return row._replace(gone_at=at, gone_position=position) if news else row


def is_news(at: datetime | None, position: Offset, fact: Fact) -> bool:
    """Whether a fact replaces another one of its kind, of this time and position; one that is there again does."""
    return not is_later(at, position, fact.event.time, fact.sequence)


def _observed(row: SharedPod, fact: Fact, data: PodSharingObserved) -> SharedPod:
    return row._replace(
        scheduler=None if data.scheduler is None else intern(data.scheduler),
        priority=data.priority,
        requests=intern(json_text(data.requests)),
        containers=intern(json_text([one.model_dump(exclude_defaults=True) for one in data.containers])),
        hint=data.hint,
        joint=data.joint,
        partition_spec=data.partition,
        unreadable=data.unreadable,
        started=data.started,
        observed_node=None if data.node is None else intern(data.node),
        annotation=text_of_allocation(data.allocation or {}),
        observed_at=fact.event.time,
        observed_position=fact.sequence,
    )


def _reserved(row: SharedPod, fact: Fact, data: PodDevicesReserved) -> SharedPod:
    return row._replace(
        strategy=intern(data.strategy),
        reserved_node=intern(data.node),
        reservation=text_of_allocation(data.allocation),
        reserved_requests=intern(json_text(data.requests)),
        reserved_at=fact.event.time,
        reserved_position=fact.sequence,
    )


def _released(row: SharedPod, fact: Fact, data: PodDevicesReleased) -> SharedPod:
    return row._replace(
        release_reason=data.reason,
        release_message=data.message,
        released_at=fact.event.time,
        released_position=fact.sequence,
    )


def _node_changed(state: Sharing, fact: Fact, data: NodeDevicesShared | NodeGone) -> None:
    before, row = state.shared_node.get(fact.event.subject), node_row(fact, data)
    if before is None or is_news(before.shared_at, before.position, fact):
        state.put_node(row)


def _pod_changed(state: Sharing, fact: Fact, data: PodPayload) -> None:
    if data.uid is not None:
        row = pod_row(state.shared_pod.get(data.uid), fact, data)
        if row is not None:
            state.put_pod(row)


def _checkpoints_observed(state: Sharing, fact: Fact, data: NodeGpuCheckpointsObserved) -> None:
    before = state.shared_checkpoints.get(fact.event.subject)
    if before is None or is_news(before.observed_at, before.position, fact):
        text = held_text(checkpoints_of(data))
        row = SharedCheckpoints(intern(fact.event.subject), text, fact.event.time, fact.sequence)
        state.put_checkpoints(row)


HANDLERS: Handlers = {
    NodeDevicesShared: _node_changed,
    NodeGone: _node_changed,
    PodSharingObserved: _pod_changed,
    PodSharingGone: _pod_changed,
    PodDevicesReserved: _pod_changed,
    PodDevicesBound: _pod_changed,
    PodDevicesReleased: _pod_changed,
    NodeGpuCheckpointsObserved: _checkpoints_observed,
}
"""Who holds what of which node."""
