"""A pod's shared devices explained as a document, for `-o json` and the page. Pure."""

from typing import Any

import orjson

from gpuledger.domain.sharing.rows import SharedPod
from gpuledger.tools.explain.shares import SharesAnswer, SharesObstacles, grouped
from gpuledger.tools.explain.shares_wording import obstacle_words, shares_words

Document = dict[str, Any]


def shares_document(found: SharesAnswer) -> Document:
    """What the pod asks for and has, and what each node makes of it."""
    pod = found.pod
    return {
        "reason": found.finding.value,
        "answer": shares_words(found),
        "state": pod.state,
        "scheduler": pod.scheduler,
        "otherScheduler": found.has_other_scheduler,
        "strategy": pod.strategy,
        "requests": orjson.loads(pod.requests),
        "devicesAsked": [
            {"type": one.type, "number": one.number, "each": dict(one.per_device)}
            for one in (found.request.types if found.request else ())
        ],
        "problem": found.problem or None,
        "unreadable": pod.unreadable,
        "node": pod.node,
        "devices": _devices(pod.allocation),
        "differs": pod.differs,
        "reservation": _reservation(pod),
        "released": None if pod.released_at is None else _release(pod),
        "sharingNodes": found.nodes,
        "fitting": list(found.fitting),
        "obstacles": [_obstacle(one) for one in grouped(found.obstacles)],
    }


def _devices(allocation: str) -> list[Document]:
    return [{"type": kind, **one} for kind, devices in orjson.loads(allocation).items() for one in devices]


def _reservation(pod: SharedPod) -> Document | None:
    if pod.reserved_at is None:
        return None
    return {"node": pod.reserved_node, "since": pod.reserved_at, "devices": _devices(pod.reservation)}


def _release(pod: SharedPod) -> Document:
    return {"at": pod.released_at, "reason": pod.release_reason, "message": pod.release_message}


def _obstacle(one: SharesObstacles) -> Document:
    return {
        "reason": one.obstacle.value,
        "answer": obstacle_words(one),
        "type": one.type,
        "resources": list(one.resources),
        "nodes": list(one.nodes),
        "mostLeft": {resource: {"amount": most, "node": node} for resource, (most, node) in one.best.items()},
        "message": one.message,
    }
