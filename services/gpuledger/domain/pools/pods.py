"""How facts about pods become rows: which pods are there that ask for units of pools, and on which node each is.

The decider keeps these rows for whoever reads them; nothing is decided upon them, so no device and no pool is touched.
Of what is said of a pod the latest by event time is in force, but a pod that is gone leaves nothing behind to compare
with: what the log has behind its end counts, whatever its time. Of one pod a watcher never says anything of an earlier
time than before, and to remember every pod that ever was would cost more than such a rarity is worth.
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
    """How many units the pod asks for, by the resources that stand for pools."""
    found: dict[str, int] = orjson.loads(row.requests)
    return found


def _observed(state: HasPods, fact: Fact, data: PodObserved) -> None:
    pod, time = fact.event.subject, fact.event.time
    known = state.pod.get(pod)
    if not is_late(known and known.said_at, time):
        node = None if data.node is None else intern(data.node)
        requests = intern(json_text(data.requests))
        state.pod.put(PoolPod(pod, data.uid, node, requests, time, _bound_at(known, data, time)))


def _bound_at(known: PoolPod | None, data: PodObserved, time: datetime) -> datetime | None:
    if data.node is None:
        return None
    is_same = known is not None and (known.uid, known.node) == (data.uid, data.node)
    return known.bound_at if is_same and known is not None else time


def _gone(state: HasPods, fact: Fact, _data: PodGone) -> None:
    known = state.pod.get(fact.event.subject)
    if known is not None and not is_late(known.said_at, fact.event.time):
        state.pod.delete(known.pod)


POD_HANDLERS: Handlers = {PodObserved: _observed, PodGone: _gone}
