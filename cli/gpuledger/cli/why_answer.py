"""Puts together why a claim or pod has no devices: the state, the claims that are meant, and who may see what."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import orjson

from gpuledger.cli.availability_state import as_of, current
from gpuledger.cli.backend import backend
from gpuledger.cli.claim_access import NOTHING, Readable, is_redacted, readable
from gpuledger.cli.errors import CliError
from gpuledger.cli.kube import Access, Answer, if_reachable
from gpuledger.cli.times import format_time
from gpuledger.cli.why_document import (
    Document,
    allocation_documents,
    claim_document,
    namespaces_of,
    request_documents,
    together_document,
)
from gpuledger.cli.why_page import claim_words
from gpuledger.domain.dra import rows
from gpuledger.domain.dra.candidates import Field
from gpuledger.domain.dra.cluster import PENDING, Availability
from gpuledger.domain.dra.facts import reach_of
from gpuledger.domain.dra.objects import Node, Reach
from gpuledger.domain.dra.placing import Allows, Pending
from gpuledger.domain.dra.reach import reaches
from gpuledger.domain.dra.why import Explanation, explain
from gpuledger.domain.dra.why_words import answer_words, notes_of
from gpuledger.events.claim import ClaimAllocated, ClaimRequested
from gpuledger.kube.client import KubeClient, Object
from gpuledger.kube.errors import NotFoundError
from gpuledger.kube.names import PODS

BY_OWNER = "The claims are those that the ledger knows as made for the pod; others that it may use are not among them."


class Question(NamedTuple):
    """What is asked: `name` is `namespace/name`; without `access` Kubernetes is not asked."""

    name: str
    at: datetime | None
    node: str | None
    access: Access | None
    data_dir: Path | None

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.name.partition("/")[0]


class PodClaims(NamedTuple):
    """A pod's claims by name, its node, and entries for which no claim was made yet."""

    claims: tuple[str, ...]
    node: str | None = None
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def of_claim(question: Question) -> Document:
    """The answer for a claim.

    Raises:
        CliError: it is not known, or may not be read.
    """
    state, redacted = await _state(question)
    if question.name not in state.claim.rows:
        hint = "List them with `gpuledger get claims`, or ask with --at for a time when it was there"
        raise CliError(f"claim {question.name!r} was not found{_then(question)}", hint)
    return await _answer(question, state, PodClaims((question.name,)), "claim", redacted=redacted)


async def of_pod(question: Question) -> Document:
    """The answer for all claims of a pod.

    Raises:
        CliError: the pod is not known, or its claims may not be read.
    """
    state, redacted = await _state(question)
    pod = await _pod_claims(question, state)
    if pod is None:
        hint = "The ledger knows pods by the claims that were made for them; Kubernetes knows them while they are there"
        raise CliError(f"pod {question.name!r} was not found{_then(question)}", hint)
    return await _answer(question, state, pod, "pod", redacted=redacted)


async def _state(question: Question) -> tuple[Availability, bool]:
    async with backend(question.data_dir, "why") as place:
        state = await current(place) if question.at is None else await as_of(place, question.at)
        return state, await is_redacted(place)


async def _pod_claims(question: Question, state: Availability) -> PodClaims | None:
    notes: tuple[str, ...] = (BY_OWNER,)
    if question.at is None and question.access is not None:
        asked: Answer[PodClaims | None] = await if_reachable(question.access, lambda one: _pod_now(one, question.name))
        if not asked.problem:
            return asked.value
        notes = (f"{BY_OWNER} Kubernetes was not asked: {asked.problem}",)
    owned = sorted(
        row.claim
        for row in state.claim.rows.values()
        if row.owner == question.name.partition("/")[2] and row.claim.partition("/")[0] == question.namespace
    )
    return PodClaims(tuple(owned), notes=notes) if owned else None


async def _pod_now(client: KubeClient, name: str) -> PodClaims | None:
    namespace, _, bare = name.partition("/")
    try:
        pod = await client.get(PODS, bare, namespace)
    except NotFoundError:
        return None
    return claims_of(pod)


def claims_of(pod: Object) -> PodClaims:
    """The claims that a Pod names, or that were made from its templates."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    made = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
    namespace, found, missing = pod["metadata"]["namespace"], [], []
    for one in spec.get("resourceClaims") or ():
        claim = one.get("resourceClaimName") or made.get(one["name"])
        if claim:
            found.append(f"{namespace}/{claim}")
        elif one["name"] not in made:  # made without a claim: none is needed
            missing.append(str(one["name"]))
    return PodClaims(tuple(dict.fromkeys(found)), spec.get("nodeName") or None, tuple(missing))


async def _answer(question: Question, state: Availability, pod: PodClaims, kind: str, *, redacted: bool) -> Document:
    from gpuledger.cli.device_selectors import selects  # noqa: PLC0415 - the CEL library takes long to import

    known = [state.claim.rows[name] for name in pod.claims if name in state.claim.rows]
    pending = [Pending(one.claim, _requested(one)) for one in known if one.phase == PENDING]
    reaches_of = [_reach(one) for one in known if one.phase != PENDING]
    name = question.node or pod.node
    node = None if name is None else state.node(name)
    found = explain(Field(state, selects), pending, node, _allows([one for one in reaches_of if one]))
    may = await _readable(question, namespaces_of(found) | {question.namespace}, redacted=redacted)
    moment = "now" if question.at is None else f"at {format_time(question.at)}"
    claims = [*(_claim(state, one, found, may) for one in known), *_unknown(pod, state)]
    return {
        "subject": f"{kind} {question.name}",
        "moment": "now" if question.at is None else format_time(question.at),
        "node": name,
        "claimsNamed": may.told,
        "answer": _words(found, claims, moment),
        "claims": claims,
        "together": together_document(found.together) if pending else None,
        "notes": [*pod.notes, *(notes_of(found) if pending else ())],
    }


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


def _unknown(pod: PodClaims, state: Availability) -> list[Document]:
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
    if not claims:
        return "it has no claims"
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


def _then(question: Question) -> str:
    return "" if question.at is None else f" at {format_time(question.at)}"
