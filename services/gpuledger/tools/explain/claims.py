"""Explains why claims have no devices: what each request finds, and whether all requests can be met at once."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.candidates import ClusterDevices
from gpuledger.domain.dra.facts import reach_of
from gpuledger.domain.dra.fold import PENDING
from gpuledger.domain.dra.objects import LabelledNode, Reach
from gpuledger.domain.dra.placement import Allows, PendingClaim
from gpuledger.domain.dra.reach import reaches
from gpuledger.domain.dra.state import Availability
from gpuledger.events.claim import ClaimAllocated, ClaimRequested
from gpuledger.tools.errors import ToolError
from gpuledger.tools.explain.access import Readable, readable
from gpuledger.tools.explain.dra import Explanation, explain
from gpuledger.tools.explain.dra_document import (
    Document,
    allocation_documents,
    claim_document,
    namespaces_of,
    request_documents,
    together_document,
)
from gpuledger.tools.explain.dra_wording import allocated_words, answer_words, notes_of
from gpuledger.tools.explain.query import QueriedPod, WhyQuery


class ClaimsExplanation(NamedTuple):
    """Claims explained in a sentence and as documents; `named` says whose claims the documents name."""

    answer: str
    claims: list[Document]
    together: Document | None
    notes: tuple[str, ...]
    named: str


async def explain_claims(query: WhyQuery, state: Availability, pod: QueriedPod) -> ClaimsExplanation:
    """Explain a pod's claims.

    Raises:
        ToolError: the user may not read them.
    """
    from gpuledger.tools.explain.device_selectors import selects  # noqa: PLC0415 - the CEL library takes long to import

    rows_of = [state.claim.rows[name] for name in pod.claims if name in state.claim.rows]
    pending = [PendingClaim(one.claim, _requested(one)) for one in rows_of if one.phase == PENDING]
    reaches_of = [_reach(one) for one in rows_of if one.phase != PENDING]
    name = query.node or pod.state.node
    node = None if name is None else state.node(name)
    found = explain(ClusterDevices(state, selects), pending, node, _allows([one for one in reaches_of if one]))
    may = await _readable(query, namespaces_of(found) | {query.namespace})
    claims = [*(_claim(state, one, found, may) for one in rows_of), *_unrecorded(pod, state)]
    together = together_document(found.together) if pending else None
    moment = query.moment if query.at is None else f"at {query.moment}"
    return ClaimsExplanation(
        _words(found, claims, moment), claims, together, tuple(notes_of(found)) if pending else (), may.basis
    )


async def _readable(query: WhyQuery, namespaces: Iterable[str]) -> Readable:
    """Whose claims may be named; a user who may not read the claims in question gets no explanation at all."""
    found = await readable(query.access, namespaces)
    if not found.may_name(query.namespace):
        hint = "Ask for the right to get resourceclaims.resource.k8s.io there"
        raise ToolError(f"You may not read ResourceClaims in namespace {query.namespace!r}", hint)
    return found


def _claim(state: Availability, row: rows.ResourceClaim, found: Explanation, may: Readable) -> Document:
    document = claim_document(row)
    answer = next((one for one in found.claims if one.claim == row.claim), None)
    if answer is None:
        allocation = allocation_documents(state, row.claim)
        return document | {"answer": allocated_words(allocation), "allocation": allocation}
    return document | {"requests": request_documents(found, answer, may.may_name)}


def _unrecorded(pod: QueriedPod, state: Availability) -> list[Document]:
    unseen = [
        {"claim": name, "phase": "Unknown", "problem": "it was not found"}
        for name in pod.claims
        if name not in state.claim.rows
    ]
    unmade = [
        {"claim": name, "phase": "Missing", "problem": "no claim has been created yet for this entry of the pod"}
        for name in pod.missing
    ]
    return unseen + unmade


def _words(found: Explanation, claims: Sequence[Document], moment: str) -> str:
    """One sentence: what is missing, or that nothing is."""
    if found.claims:
        return answer_words(found, moment)
    problems = [f"{one['claim']}: {one['problem']}" for one in claims if "problem" in one]
    if problems:
        return "; ".join(problems)
    return "; ".join(f"{one['claim']}: {one['answer']}" if len(claims) > 1 else one["answer"] for one in claims)


def _requested(row: rows.ResourceClaim) -> ClaimRequested:
    return ClaimRequested.model_validate(orjson.loads(row.payload))


def _reach(row: rows.ResourceClaim) -> Reach | None:
    reach = ClaimAllocated.model_validate(orjson.loads(row.payload)).reach
    return None if reach is None else reach_of(reach)


def _allows(every: Sequence[Reach]) -> Allows | None:
    def allows(node: LabelledNode) -> bool:
        return all(reaches(one, node) for one in every)

    return allows if every else None
