"""A pod's units explained as documents, for `-o json` and the page. They name only pods that the user may read."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuledger.domain.quantities import parse_quantity
from gpuledger.tools.explain.pod_units import UnitsExplanation
from gpuledger.tools.explain.pools import NodeUnits, PodUse, PoolAnswer
from gpuledger.tools.explain.pools_wording import apart_words, pool_words
from gpuledger.tools.explain.query import QueriedPod

Document = dict[str, Any]


def pod_document(pod: QueriedPod) -> Document:
    """The progress of the pod."""
    state = pod.state
    return {
        "node": state.node,
        "since": state.since,
        "ended": state.ended,
        "running": state.running,
        "schedulingGates": list(pod.gates),
        "scheduler": None if pod.scheduler is None else pod.scheduler._asdict(),
    }


def pool_documents(found: UnitsExplanation) -> list[Document]:
    """A document for each pool."""
    return [
        _pool(one, found, [_quota(quota, one.request.units) for quota in found.quotas.get(one.request.resource, ())])
        for one in found.answers
    ]


def pools_sentences(found: UnitsExplanation) -> list[str]:
    """The answer as far as pools go, a sentence each."""
    apart = apart_words(found.answers)
    return [*map(pool_words, found.answers), *([apart] if apart else [])]


def quota_notes(documents: Sequence[Document]) -> list[str]:
    """A note for each quota that leaves too little; an existing pod was counted when it was created."""
    return [
        f"ResourceQuota {quota['name']} leaves {quota['left']} of {quota['hard']} of {pool['resource']}: another pod "
        f"that requests {pool['asked']} would be refused. Existing pods are not affected."
        for pool in documents
        for quota in pool["quotas"]
        if quota["reached"]
    ]


def _pool(found: PoolAnswer, of: UnitsExplanation, quotas: list[Document]) -> Document:
    request, bound = found.request, [one for one in found.uses if one.node is not None]
    named = [one for one in bound if of.may.may_name(_namespace(one))]
    unnamed = [one for one in bound if not of.may.may_name(_namespace(one))]
    return {
        "resource": request.resource,
        "pool": request.pool,
        "asked": request.units,
        "reason": str(found.finding),
        "answer": pool_words(found),
        "deleting": found.deleting,
        "conditions": [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in found.against
        ],
        "total": found.total,
        "used": sum(one.units for one in bound),
        "free": found.free,
        "devicesThatOfferNothing": [one._asdict() for one in found.idle],
        "nodes": [_node(one, request.units) for one in found.rooms],
        "pods": [one._asdict() for one in named],
        "unnamedPods": {"pods": len(unnamed), "units": sum(one.units for one in unnamed)},
        "othersWaiting": sum(one.node is None for one in found.uses),
        "taintsNotTolerated": list(of.untolerated.get(request.pool, ())),
        "quotas": quotas,
    }


def _node(room: NodeUnits, requested: int) -> Document:
    return {
        "node": room.node,
        "offered": room.offered,
        "used": room.used,
        "free": room.free,
        "fits": room.fits(requested),
        "inTheWay": [{"reason": str(one.barrier), "detail": one.detail} for one in room.constraints],
    }


def _quota(quota: Mapping[str, Any], requested: int) -> Document:
    hard, used = _whole(quota["hard"]), _whole(quota["used"] or 0)
    left = None if hard is None or used is None else max(0, hard - used)
    return {
        "name": quota["name"],
        "hard": quota["hard"],
        "used": quota["used"],
        "left": left,
        "reached": left is not None and left < requested,
    }


def _whole(text: object) -> int | None:
    try:
        return parse_quantity(text).whole
    except ValueError:
        return None


def _namespace(use: PodUse) -> str:
    return use.pod.partition("/")[0]
