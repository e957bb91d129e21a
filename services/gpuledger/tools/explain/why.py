"""Explains why a claim or pod waits: reads the state, finds the subject, and puts the parts of the answer together."""

from collections.abc import Awaitable
from typing import Final, NamedTuple, TypeVar

from gpuledger.api.kinds import PODS
from gpuledger.domain.dra.fold import PENDING
from gpuledger.domain.dra.state import Availability
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.preflight.pod_checks import PodChecks
from gpuledger.tools.cluster import if_reachable, object_or_none
from gpuledger.tools.errors import ToolError
from gpuledger.tools.explain.claims import ClaimsExplanation, explain_claims
from gpuledger.tools.explain.consumers import (
    NO_CONSUMER,
    ClaimUse,
    origin_note,
    read_classes,
    read_meant,
    read_use,
    unclaimed_resources,
)
from gpuledger.tools.explain.dra_document import Document
from gpuledger.tools.explain.pod_preflight import ChecksExplanation, explain_checks
from gpuledger.tools.explain.pod_shares import SharesExplanation, explain_shares
from gpuledger.tools.explain.pod_units import UnitsExplanation, explain_units
from gpuledger.tools.explain.pools_document import pod_document, pool_documents, pools_sentences, quota_notes
from gpuledger.tools.explain.query import (
    QueriedPod,
    WhyQuery,
    pod_of,
    recorded_pod,
    recorded_with_checks,
    recorded_with_shares,
)
from gpuledger.tools.present.preflight import has_checks
from gpuledger.tools.queries.moments import PointInTime
from gpuledger.tools.queries.shares import RecordedShares
from gpuledger.tools.queries.source import StateSource

T = TypeVar("T")

NOTHING_REQUESTED: Final = "it requests no units of a pool and has no claims"
LIST_CLAIMS: Final = "List them with `gpuledger get claims`"
IN_THE_PAST: Final = ", or use --at for a time when it existed"
POD_OF_THE_PAST: Final = (
    "Kubernetes has the pods that exist, the ledger those that requested GPUs. Use --at for a time when the pod "
    "existed. "
)
NEVER_MADE: Final = (
    "If it was never created, a quota or admission may have refused it: see `kubectl describe` of its "
    "ReplicaSet or Job, or `kubectl get events`"
)


async def why_claim(source: StateSource, query: WhyQuery) -> Document:
    """The explanation of a claim.

    Raises:
        ToolError: there is no such claim, or the user may not read it.
    """
    state = await _States(source, query).availability()
    if query.name not in state.claim.rows:
        raise await _claim_not_found(query, LIST_CLAIMS if source.is_present_only else LIST_CLAIMS + IN_THE_PAST)
    found = await explain_claims(query, state, QueriedPod((query.name,)))
    use, notes = await _use(query)
    consumers, is_pending = None if use is None else list(use.consumers), state.claim.rows[query.name].phase == PENDING
    answer = f"{NO_CONSUMER}; {found.answer}" if is_pending and consumers == [] else found.answer
    head = _document(query, "claim", query.node, answer) | {"consumers": consumers}
    return head | _claims_part(found) | {"notes": [*notes, *found.notes, *source.notes]}


async def why_pod(source: StateSource, query: WhyQuery) -> Document:
    """The explanation of a pod: of its claims, the units and shared devices that it requests, and its preflight checks.

    Raises:
        ToolError: there is no such pod, or the user may read nothing of what it requests.
    """
    states = _States(source, query)
    pod = await _pod(states, query)
    if pod is None:
        hint = NEVER_MADE if source.is_present_only else POD_OF_THE_PAST + NEVER_MADE
        raise ToolError(f"pod {query.name!r} was not found{_then(query)}", hint)
    pod = await _with_classes(query, pod)
    refusals: list[ToolError] = []
    units = await _or_refusal(explain_units(await states.pools(), query, pod), refusals) if pod.units else None
    claims = None
    if pod.claims or pod.missing:
        claims = await _or_refusal(explain_claims(query, await states.availability(), pod), refusals)
    checks = None
    if pod.object is None or has_checks(pod.object):
        checks = await _or_refusal(explain_checks(await states.checks(), query, pod), refusals)
    shares = None
    if (recorded := await states.shares()) is not None:
        shares = await _or_refusal(explain_shares(recorded, query, pod), refusals)
    parts = _Parts(units, claims, checks, shares)
    if refusals and not any(parts):
        raise refusals[0]
    document = _of_parts(query, pod, parts, [str(one) for one in refusals])
    return document | {"notes": [*document["notes"], *source.notes]}


async def _claim_not_found(query: WhyQuery, hint: str) -> ToolError:
    """The error about a claim that is not there, with what else the name means."""
    missing = f"claim {query.name!r} was not found{_then(query)}"
    if query.live_access is not None:
        reply = await if_reachable(query.live_access, lambda client: read_meant(client, query.name))
        if reply.value is not None:
            return ToolError(f"{missing}: {reply.value.message}", reply.value.hint)
    return ToolError(missing, hint)


async def _use(query: WhyQuery) -> tuple[ClaimUse | None, list[str]]:
    """How a claim is used now, and notes about it; in the past, and without Kubernetes, nothing."""
    if query.live_access is None:
        return None, []
    reply = await if_reachable(query.live_access, lambda client: read_use(client, query.name))
    if reply.value is None:
        return None, [f"It was not checked whether a pod refers to the claim: {reply.problem}"]
    note = None if reply.value.object is None else origin_note(reply.value.object)
    return reply.value, [] if note is None else [note]


class _States:
    """The states at the moment in question; each is read when it is first needed."""

    def __init__(self, source: StateSource, query: WhyQuery) -> None:
        self.source = source
        self._query = query
        self._availability: Availability | None = None
        self._pools: PoolFacts | None = None
        self._checks: list[PodChecks | None] = []
        self._shares: list[RecordedShares | None] = []

    async def availability(self) -> Availability:
        """Slices, claims and who holds what."""
        if self._availability is None:
            self._availability = await self.source.availability(PointInTime(self._query.at))
        return self._availability

    async def pools(self) -> PoolFacts:
        """Pools, and the pods that request units of them."""
        if self._pools is None:
            self._pools = await self.source.pools(self._query.at)
        return self._pools

    async def checks(self) -> PodChecks | None:
        """The preflight checks of the latest pod of the name."""
        if not self._checks:
            self._checks.append(await self.source.preflight(self._query.name, self._query.at))
        return self._checks[0]

    async def shares(self) -> RecordedShares | None:
        """Shared devices, and the latest pod of the name."""
        if not self._shares:
            self._shares.append(await self.source.shares(self._query.name, self._query.at))
        return self._shares[0]


async def _pod(states: _States, query: WhyQuery) -> QueriedPod | None:
    """The pod, from Kubernetes for the present, and else as the source has it."""
    problem = ""
    if query.live_access is not None:
        namespace, _, name = query.name.partition("/")
        reply = await if_reachable(query.live_access, lambda client: object_or_none(client, PODS, name, namespace))
        if not reply.problem:
            return None if reply.value is None else pod_of(reply.value)
        problem = reply.problem
    if query.at is None:
        row = (await states.pools()).pod.get(query.name)
    else:
        row = (await states.source.pods(query.name, query.at)).get(query.name)
    found = recorded_pod(query.name, await states.availability(), row, problem)
    found = found or recorded_with_checks(await states.checks(), problem)
    shares = None if found is not None else await states.shares()
    return found if shares is None else recorded_with_shares(shares.pod, problem)


async def _with_classes(query: WhyQuery, pod: QueriedPod) -> QueriedPod:
    """The pod with the DeviceClasses of its extended resources, while the scheduler has made no claim for them."""
    if pod.object is None or query.live_access is None:
        return pod
    resources = unclaimed_resources(pod.object)
    reply = await if_reachable(query.live_access, lambda client: read_classes(client, resources))
    return pod if reply.value is None else pod._replace(provided=reply.value)


async def _or_refusal(part: Awaitable[T], refusals: list[ToolError]) -> T | None:
    """One part of the answer; where the user may not read it, the answer has the other parts and the refusal."""
    try:
        return await part
    except ToolError as error:
        refusals.append(error)
        return None


class _Parts(NamedTuple):
    """The parts of an answer about a pod; None for what it does not request or have, or the user may not read."""

    units: UnitsExplanation | None
    claims: ClaimsExplanation | None
    checks: ChecksExplanation | None
    shares: SharesExplanation | None


def _of_parts(query: WhyQuery, pod: QueriedPod, parts: _Parts, refusals: list[str]) -> Document:
    """The answer: pools and shared devices first, then claims, then checks, as they come one after the other."""
    units, claims, checks, shares = parts
    documents = [] if units is None else pool_documents(units)
    sentences = [f"its scheduling gates keep it waiting: {', '.join(pod.gates)}"] if pod.gates else []
    sentences += [] if units is None else pools_sentences(units)
    sentences += [] if shares is None else [shares.answer]
    sentences += [] if claims is None else [claims.answer]
    sentences += [
        f"DeviceClass {device_class} provides {resource}, and the scheduler makes a claim for it when it places the pod"
        for resource, device_class in pod.provided.items()
    ]
    sentences += [] if checks is None or not checks.answer else [checks.answer]
    head = _document(query, "pod", query.node or pod.state.node, "; ".join(sentences) or NOTHING_REQUESTED)
    units_notes = [] if units is None else [*units.notes, *quota_notes(documents)]
    notes = [*pod.notes, *refusals, *units_notes, *(() if claims is None else claims.notes)]
    notes += [*(() if shares is None else shares.notes), *(() if checks is None else checks.notes)]
    pod_part = {"pod": pod_document(pod), "podsNamed": None if units is None else units.may.basis, "pools": documents}
    shares_part = {"shares": None if shares is None else shares.document}
    checks_part = {"preflight": None if checks is None else checks.document}
    return head | pod_part | shares_part | _claims_part(claims) | checks_part | {"notes": notes}


def _document(query: WhyQuery, kind: str, node: str | None, answer: str) -> Document:
    return {"subject": f"{kind} {query.name}", "moment": query.moment, "node": node, "answer": answer}


def _claims_part(found: ClaimsExplanation | None) -> Document:
    if found is None:
        return {"claimsNamed": None, "claims": [], "together": None}
    return {"claimsNamed": found.named, "claims": found.claims, "together": found.together}


def _then(query: WhyQuery) -> str:
    return "" if query.at is None else f" at {query.moment}"
