"""Puts together why a claim or pod waits: the state, what is meant by the name, and the answers of its parts."""

from collections.abc import Awaitable
from typing import Final, TypeVar

from gpuledger.cli.availability_state import as_of, current
from gpuledger.cli.backend import Backend, backend
from gpuledger.cli.cluster import Answer, if_reachable
from gpuledger.cli.errors import CliError
from gpuledger.cli.pool_pods import pods_asking
from gpuledger.cli.why.claim_access import is_redacted
from gpuledger.cli.why.claims import OfClaims, of_claims
from gpuledger.cli.why.pod import AskedPod, pod_known, pod_now, pod_of
from gpuledger.cli.why.pools import OfPools, known_pools, of_pools
from gpuledger.cli.why.pools_document import pod_document, pool_documents, pools_sentences, quota_notes
from gpuledger.cli.why.question import Question
from gpuledger.domain.dra.fold import Availability
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.edge.kube.client import Object
from gpuledger.tools.explain.dra_document import Document

T = TypeVar("T")

NOTHING_ASKED: Final = "it asks for no GPU of a pool and has no claims"
NEVER_MADE: Final = (
    "The ledger knows pods by what they ask for, Kubernetes while they are there. Ask with --at for a time when it was "
    "there. If it was never made, a quota or admission may have refused it: `kubectl describe` its ReplicaSet or Job, "
    "or `kubectl get events`"
)


async def of_claim(question: Question) -> Document:
    """The answer for a claim.

    Raises:
        CliError: it is not known, or may not be read.
    """
    async with backend(question.data_dir, "why") as place:
        state, redacted = await _state(place, question), await is_redacted(place)
    if question.name not in state.claim.rows:
        hint = "List them with `gpuledger get claims`, or ask with --at for a time when it was there"
        raise CliError(f"claim {question.name!r} was not found{_then(question)}", hint)
    found = await of_claims(question, state, AskedPod((question.name,)), redacted=redacted)
    return _document(question, "claim", question.node, found.answer) | _claims_part(found) | {"notes": [*found.notes]}


async def of_pod(question: Question) -> Document:
    """The answer for all claims of a pod, and for the units of pools that it asks for.

    Raises:
        CliError: the pod is not known, or nothing of what it asks for may be read.
    """
    async with backend(question.data_dir, "why") as place:
        state, redacted = await _state(place, question), await is_redacted(place)
        pod, known = await _pod(place, question, state)
        if pod is None:
            raise CliError(f"pod {question.name!r} was not found{_then(question)}", NEVER_MADE)
        if pod.units and known is None:
            known = await known_pools(place, question)
    refused: list[CliError] = []
    pools = await _or_refused(of_pools(known, question, pod), refused) if pod.units and known is not None else None
    has_claims = bool(pod.claims or pod.missing)
    asked = of_claims(question, state, pod, redacted=redacted) if has_claims else None
    claims = None if asked is None else await _or_refused(asked, refused)
    if refused and pools is None and claims is None:
        raise refused[0]
    return _of_parts(question, pod, pools, claims, [str(one) for one in refused])


async def _state(place: Backend, question: Question) -> Availability:
    return await current(place) if question.at is None else await as_of(place, question.at)


async def _pod(place: Backend, question: Question, state: Availability) -> tuple[AskedPod | None, PoolFacts | None]:
    """The pod, and the pools where they had to be looked at to know of it."""
    problem = ""
    if question.kube is not None:
        asked: Answer[Object | None] = await if_reachable(question.kube, lambda one: pod_now(one, question.name))
        if not asked.problem:
            return None if asked.value is None else pod_of(asked.value), None
        problem = asked.problem
    known = await known_pools(place, question) if question.at is None else None
    pods = await pods_asking(place, question.at, question.name) if known is None else known.pod.rows
    return pod_known(question.name, state, pods.get(question.name), problem), known


async def _or_refused(asked: Awaitable[T], refused: list[CliError]) -> T | None:
    """One part of the answer; where it may not be read, the others are told without it."""
    try:
        return await asked
    except CliError as error:
        refused.append(error)
        return None


def _of_parts(
    question: Question, pod: AskedPod, pools: OfPools | None, claims: OfClaims | None, refused: list[str]
) -> Document:
    """What is said of pools first, then of claims; the answer has both."""
    documents = [] if pools is None else pool_documents(pools)
    sentences = [f"its scheduling gates keep it waiting: {', '.join(pod.gates)}"] if pod.gates else []
    sentences += [] if pools is None else pools_sentences(pools)
    sentences += [] if claims is None else [claims.answer]
    head = _document(question, "pod", question.node or pod.state.node, "; ".join(sentences) or NOTHING_ASKED)
    of_pools_notes = [] if pools is None else [*pools.notes, *quota_notes(documents)]
    notes = [*pod.notes, *refused, *of_pools_notes, *(() if claims is None else claims.notes)]
    of_pod_part = {"pod": pod_document(pod), "podsNamed": None if pools is None else pools.may.told, "pools": documents}
    return head | of_pod_part | _claims_part(claims) | {"notes": notes}


def _document(question: Question, kind: str, node: str | None, answer: str) -> Document:
    return {"subject": f"{kind} {question.name}", "moment": question.moment, "node": node, "answer": answer}


def _claims_part(found: OfClaims | None) -> Document:
    if found is None:
        return {"claimsNamed": None, "claims": [], "together": None}
    return {"claimsNamed": found.named, "claims": found.claims, "together": found.together}


def _then(question: Question) -> str:
    return "" if question.at is None else f" at {question.moment}"
