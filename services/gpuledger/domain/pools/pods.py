"""Folds pods that request units of pools into rows: how many units of which pools, and the node that each pod is on.

The decider keeps these rows for those who read them; it decides nothing by them, so no device and no pool is touched.
The latest fact about a pod by event time is in force. A pod that is gone leaves nothing behind to compare times with,
so any later record counts: a watcher never records an earlier time of one pod than before, and to remember every pod
that ever existed would cost more than such a rarity is worth.
"""

from datetime import datetime
from sys import intern
from typing import Protocol

import orjson

from gpuledger.domain.fact import Fact, Handlers, is_late
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.pools.rows import PoolPod
from gpuledger.domain.table import Table
from gpuledger.events.pod import PodGone, PodObserved


class HasPods(Protocol):
    """A state that these handlers can fold into."""

    pod: Table[PoolPod]


def units_by_resource(row: PoolPod) -> dict[str, int]:
    """How many units the pod requests, by the resources of pools."""
    found: dict[str, int] = orjson.loads(row.requests)
    return found


def _observed(state: HasPods, fact: Fact, data: PodObserved) -> None:
    pod, time = fact.event.subject, fact.event.time
    before = state.pod.get(pod)
    if not is_late(before and before.observed_at, time):
        node = None if data.node is None else intern(data.node)
        requests = intern(json_text(data.requests))
        state.pod.put(PoolPod(pod, data.uid, node, requests, time, _bound_at(before, data, time)))


def _bound_at(before: PoolPod | None, data: PodObserved, time: datetime) -> datetime | None:
    if data.node is None:
        return None
    is_same = before is not None and (before.uid, before.node) == (data.uid, data.node)
    return before.bound_at if is_same and before is not None else time


def _gone(state: HasPods, fact: Fact, _data: PodGone) -> None:
    row = state.pod.get(fact.event.subject)
    if row is not None and not is_late(row.observed_at, fact.event.time):
        state.pod.delete(row.pod)


POD_HANDLERS: Handlers = {PodObserved: _observed, PodGone: _gone}
