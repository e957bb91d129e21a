"""Puts together why claims have no devices: what each request meets, and whether all can be had at once."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from gpuledger.cli.errors import CliError
from gpuledger.cli.render.why_page import claim_words
from gpuledger.cli.why.claim_access import NOTHING, Readable, readable
from gpuledger.cli.why.pod import AskedPod
from gpuledger.cli.why.question import Question
from gpuledger.domain.dra import rows
from gpuledger.domain.dra.candidates import Field
from gpuledger.domain.dra.facts import reach_of
from gpuledger.domain.dra.fold import PENDING, Availability
from gpuledger.domain.dra.objects import Node, Reach
from gpuledger.domain.dra.placement import Allows, Pending
from gpuledger.domain.dra.reach import reaches
from gpuledger.events.claim import ClaimAllocated, ClaimRequested
from gpuledger.tools.explain.dra import Explanation, explain
from gpuledger.tools.explain.dra_document import (
    Document,
    allocation_documents,
    claim_document,
    namespaces_of,
    request_documents,
    together_document,
)
from gpuledger.tools.explain.dra_wording import answer_words, notes_of


class OfClaims(NamedTuple):
    """What is to be said of claims: in a sentence, as documents, and whose claims are named in them."""

    answer: str
    claims: list[Document]
    together: Document | None
    notes: tuple[str, ...]
    named: str


async def of_claims(question: Question, state: Availability, pod: AskedPod, *, redacted: bool) -> OfClaims:
    """What is to be said of a pod's claims.

    Raises:
        CliError: they may not be read.
    """
    from gpuledger.tools.explain.device_selectors import selects  # noqa: PLC0415 - the CEL library takes long to import

    known = [state.claim.rows[name] for name in pod.claims if name in state.claim.rows]
    pending = [Pending(one.claim, _requested(one)) for one in known if one.phase == PENDING]
    reaches_of = [_reach(one) for one in known if one.phase != PENDING]
    name = question.node or pod.state.node
    node = None if name is None else state.node(name)
    found = explain(Field(state, selects), pending, node, _allows([one for one in reaches_of if one]))
    may = await _readable(question, namespaces_of(found) | {question.namespace}, redacted=redacted)
    claims = [*(_claim(state, one, found, may) for one in known), *_unknown(pod, state)]
    together = together_document(found.together) if pending else None
    moment = question.moment if question.at is None else f"at {question.moment}"
    return OfClaims(
        _words(found, claims, moment), claims, together, tuple(notes_of(found)) if pending else (), may.told
    )


async def _readable(question: Question, namespaces: Iterable[str], *, redacted: bool) -> Readable:
    """Whose claims may be named; whoever may not read the claims that are asked about gets no answer at all."""
    found = await readable(question.access, namespaces)
    if not found.may_name(question.namespace):
        hint = "Ask for the right to get resourceclaims.resource.k8s.io there"
        raise CliError(f"You may not read ResourceClaims in namespace {question.namespace!r}", hint)
    return NOTHING if redacted else found


def _claim(state: Availability, row: rows.ResourceClaim, found: Explanation, may: Readable) -> Document:
    document = claim_document(row)
    answer = next((one for one in found.claims if one.claim == row.claim), None)
    if answer is None:
        allocation = allocation_documents(state, row.claim)
        return document | {"answer": claim_words(allocation), "allocation": allocation}
    return document | {"requests": request_documents(found, answer, may.may_name)}


def _unknown(pod: AskedPod, state: Availability) -> list[Document]:
    unseen = [
        {"claim": name, "phase": "Unknown", "problem": "the ledger does not know it"}
        for name in pod.claims
        if name not in state.claim.rows
    ]
    unmade = [
        {"claim": name, "phase": "Missing", "problem": "no claim was made yet for this entry of the pod"}
        for name in pod.missing
    ]
    return unseen + unmade


def _words(found: Explanation, claims: Sequence[Document], moment: str) -> str:
    """One sentence: what cannot be had yet, or that all is there."""
    if found.claims:
        return answer_words(found, moment)
    problems = [f"{one['claim']}: {one['problem']}" for one in claims if "problem" in one]
    if problems:
        return "; ".join(problems)
    return "; ".join(f"{one['claim']}: {one['answer']}" if len(claims) > 1 else one["answer"] for one in claims)


def _requested(row: rows.ResourceClaim) -> ClaimRequested:
    return ClaimRequested.model_validate(orjson.loads(row.said))


def _reach(row: rows.ResourceClaim) -> Reach | None:
    said = ClaimAllocated.model_validate(orjson.loads(row.said)).reach
    return None if said is None else reach_of(said)


def _allows(every: Sequence[Reach]) -> Allows | None:
    def allows(node: Node) -> bool:
        return all(reaches(one, node) for one in every)

    return allows if every else None
