"""An explanation of claims as a document, for `-o json` and the page. It names only claims that the user may read."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.candidates import Candidate
from gpuledger.domain.dra.constraints import ORDER, DeviceConstraint, Mismatch
from gpuledger.domain.dra.device_state import UnavailableReason
from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.dra.placement import Disagreement, Placement
from gpuledger.domain.dra.pool_index import view_of
from gpuledger.domain.dra.state import Availability
from gpuledger.tools.explain.dra import ClaimAnswer, Explanation, InPool, OptionAnswer, RequestAnswer
from gpuledger.tools.explain.dra_wording import most_of, option_words, request_words, tally

MayName = Callable[[str], bool]
"""Whether claims of a namespace may be named."""

Document = dict[str, Any]
_Reason = tuple[UnavailableReason | Mismatch, str]
_Hindered = list[tuple[str, DeviceConstraint]]


def namespaces_of(explanation: Explanation) -> set[str]:
    """The namespaces of the claims that hold requested devices."""
    return {held.claim.namespace for one in _hindrances(explanation) for held in one.holdings}


def claim_document(row: rows.ResourceClaim) -> Document:
    """The facts about a claim."""
    return {"claim": row.claim, "uid": row.uid, "phase": row.phase, "since": row.since, "owner": row.owner}


def allocation_documents(state: Availability, claim: str) -> list[Document]:
    """The devices that a claim holds, and since when."""
    return [
        {
            "request": row.request,
            "driver": row.driver,
            "pool": row.pool,
            "device": row.device,
            "node": _node_of(state, row),
            "since": row.valid_from,
            "adminAccess": row.admin_access,
            "shareID": row.share or None,
            "consumedCapacity": orjson.loads(row.consumed) if row.consumed else None,
        }
        for row in sorted(state.held(claim), key=lambda row: (row.request, row.driver, row.pool, row.device))
    ]


def _node_of(state: Availability, row: rows.DeviceAllocation) -> str | None:
    """The node of a device, where its pool has it on one."""
    slices = state.index(PoolId(row.driver, row.pool)).slices.values()
    nodes = {view_of(one) for one in slices if any(device.name == row.device for device in one.devices)}
    return nodes.pop() or None if len(nodes) == 1 else None


def request_documents(explanation: Explanation, claim: ClaimAnswer, may_name: MayName) -> list[Document]:
    """What each request of a claim finds."""
    return [_request(explanation, claim, request, may_name) for request in claim.requests]


def together_document(found: Placement) -> Document:
    """Whether all requests can be met at once, on which node, and the obstacles."""
    document: Document = {"possible": found.allocated is not None, "node": found.node, "nodes": found.nodes}
    if found.allocated is not None:
        given = ((one, one.candidate) for one in found.allocated)
        document["devices"] = [
            {
                "claim": one.claim,
                "request": one.label,
                "driver": device.pool.driver,
                "pool": device.pool.name,
                "device": device.device.name,
            }
            for one, device in given
        ]
        return document
    document["onThatNode"] = [one._asdict() for one in found.best]
    document["constraints"] = [_disagreement(one) for one in found.disagreements]
    return document | {"scarce": found.is_scarce, "exact": found.is_decided}


def _request(explanation: Explanation, claim: ClaimAnswer, request: RequestAnswer, may_name: MayName) -> Document:
    most = most_of(explanation.together)
    return {
        "request": request.name,
        "answer": request_words(claim, request, most),
        "alternatives": [
            _option(one, may_name) | {"answer": option_words(claim, one, most)} for one in request.options
        ],
    }


def _option(option: OptionAnswer, may_name: MayName) -> Document:
    every = option.candidates
    return {
        "name": option.wish.name,
        "deviceClass": option.wish.device_class,
        "asked": option.wish.count if option.wish.mode == "ExactCount" else option.wish.mode,
        "adminAccess": option.wish.admin_access,
        "problem": option.problem or None,
        "devices": len(every),
        "matching": sum(one.matches for one in every),
        "available": sum(one.is_free for one in every),
        "inTheWay": {str(kind): count for kind, count in tally(option).items()},
        "pools": [_pool(one, may_name) for one in option.pools],
    }


def _pool(found: InPool, may_name: MayName) -> Document:
    return {
        "driver": found.pool.driver,
        "pool": found.pool.name,
        "node": found.node,
        "devices": len(found.candidates),
        "matching": sum(one.matches for one in found.candidates),
        "available": sum(one.is_free for one in found.candidates),
        "problem": "; ".join(f"{one.kind}: {one.detail}" for one in found.constraints) or None,
        "reasons": [
            _reason(kind, detail, devices, may_name)
            for (kind, detail), devices in sorted(_by_reason(found.candidates).items(), key=_order)
        ],
    }


def _by_reason(candidates: Iterable[Candidate]) -> Mapping[_Reason, _Hindered]:
    """Devices by obstacle; a device with several obstacles appears with each."""
    found: dict[_Reason, _Hindered] = {}
    for one in candidates:
        for constraint in one.constraints:
            found.setdefault((constraint.kind, constraint.detail), []).append((one.device.name, constraint))
    return found


def _order(item: tuple[_Reason, _Hindered]) -> tuple[int, str]:
    kind, detail = item[0]
    return ORDER.index(kind), detail


def _reason(kind: str, detail: str, devices: _Hindered, may_name: MayName) -> Document:
    document: Document = {"reason": str(kind), "detail": detail, "devices": [name for name, _ in devices]}
    claims = {held.claim for _, constraint in devices for held in constraint.holdings}
    if not claims:
        return document
    named = sorted(str(one) for one in claims if may_name(one.namespace))
    return document | {"claims": named, "unnamedClaims": len(claims) - len(named)}


def _disagreement(one: Disagreement) -> Document:
    return {
        "claim": one.claim,
        "matchAttribute": one.constraint.match_attribute,
        "distinctAttribute": one.constraint.distinct_attribute,
        "values": [
            {"request": label, "counts": [{"value": value, "devices": count} for value, count in counts]}
            for label, counts in one.values
        ],
    }


def _hindrances(explanation: Explanation) -> Iterator[DeviceConstraint]:
    for claim in explanation.claims:
        for request in claim.requests:
            for option in request.options:
                for one in option.candidates:
                    yield from one.constraints
