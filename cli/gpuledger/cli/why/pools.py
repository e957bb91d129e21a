"""Puts together why a pod has no units of the pools that it asks for: the ledger's facts, and what Kubernetes adds.

The ledger knows pools, devices and pods. Kubernetes is asked about nodes that offer units, for what keeps the pod off
them, and about the quotas of the pod's namespace; where it is not asked a note says what was not looked at.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from gpuledger.api.kinds import NODES, PODS
from gpuledger.cli.backend import Backend
from gpuledger.cli.cluster import ASKED_AT_ONCE, Answer, if_reachable
from gpuledger.cli.describe.pool import quotas_on
from gpuledger.cli.errors import CliError
from gpuledger.cli.pool_past import pools_as_of
from gpuledger.cli.pool_pods import uses_of
from gpuledger.cli.pool_state import current_pools
from gpuledger.cli.rows import RowDict
from gpuledger.cli.why.claim_access import Readable, readable
from gpuledger.cli.why.pod import AskedPod
from gpuledger.cli.why.question import Question
from gpuledger.domain.dra.objects import Node
from gpuledger.domain.pools.spec import read_spec
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.errors import NotFoundError, RefusedError
from gpuledger.edge.statuswriter.desired.pools import pool_of
from gpuledger.tools.explain.node_fit import hindrances, selection, untolerated
from gpuledger.tools.explain.pool_nodes import NODES_ASKED_MAX, asked_notes, judged_nodes
from gpuledger.tools.explain.pools import (
    HAS_OR_NEEDS_NONE,
    Ask,
    Barrier,
    Finding,
    Hindrance,
    Hindrances,
    PodUse,
    PoolAnswer,
    answer,
)
from gpuledger.tools.explain.pools_wording import NOT_PLACED, ONLY_UNITS, SEVERAL_POOLS

NO_SCHEDULER: Final = (
    "No scheduler has said anything of the pod; an API server of `gpuledger up` or `kube-api` has none."
)


class OfPools(NamedTuple):
    """What is to be said of a pod's units; `may` says of which namespaces pods may be named, `quotas` are by resource.

    `untolerated` are by pool the taints that it declares and the pod does not tolerate.
    """

    answers: tuple[PoolAnswer, ...]
    may: Readable
    quotas: Mapping[str, Sequence[RowDict]]
    untolerated: Mapping[str, Sequence[str]]
    notes: tuple[str, ...]


class _Seen(NamedTuple):
    """What Kubernetes knows of nodes (None: it has no such node) and quotas, and why it does not tell more."""

    nodes: Mapping[str, Object | None]
    nodes_problem: str
    quotas: Mapping[str, Sequence[RowDict]]
    quotas_problem: str


async def known_pools(place: Backend, question: Question) -> PoolFacts:
    """What the ledger knows of pools and of the pods that ask for their units, now or then."""
    return await current_pools(place) if question.at is None else await pools_as_of(place, question.at)


async def of_pools(known: PoolFacts, question: Question, pod: AskedPod) -> OfPools:
    """What is to be said of each pool that the pod asks for units of.

    Raises:
        CliError: pods of its namespace may not be read, and Kubernetes has not shown this one.
    """
    asks = [
        (Ask(resource, pool, number), _uses(known, question.name, pod, pool))
        for resource, number in sorted(pod.units.items())
        if (pool := pool_of(resource, question.namespace)) is not None
    ]
    answers = [answer(known, ask, uses, pod.state, only=question.node) for ask, uses in asks]
    namespaces = {use.pod.partition("/")[0] for _, uses in asks for use in uses} | {question.namespace}
    may = await readable(question.access, namespaces, PODS)
    if pod.object is None and not may.may_name(question.namespace):
        raise CliError(
            f"You may not read Pods in namespace {question.namespace!r}", "Ask for the right to get pods there"
        )
    notes = [SEVERAL_POOLS] if len(asks) > 1 else []
    if question.node is not None and known.node.get(question.node) is None:
        notes.append(f"The ledger knows no node {question.node}.")
    wanted = judged_nodes(answers)
    if pod.object is None or question.kube is None:
        return OfPools(tuple(answers), may, {}, {}, (*notes, *([NOT_PLACED] if wanted else [])))
    told = await if_reachable(question.kube, lambda client: _seen(client, question.namespace, answers, wanted))
    seen = told.value or _Seen({}, told.problem, {}, told.problem)
    closed = _hindrances(pod.object, known, wanted, seen)
    judged = [answer(known, ask, uses, pod.state, hindrances=closed, only=question.node) for ask, uses in asks]
    lacking = _lacking(known, pod.object, judged)
    notes += _notes(judged, seen, len(wanted), lacking)
    notes += [NO_SCHEDULER] if _is_unseen(pod, judged) else []
    return OfPools(tuple(judged), may, seen.quotas, lacking, tuple(notes))


def _is_unseen(pod: AskedPod, answers: Sequence[PoolAnswer]) -> bool:
    """Whether a pod waits that could be placed, and that no scheduler has said anything of."""
    could = any(one.finding is Finding.FITS for one in answers)
    return could and not pod.gates and pod.scheduler is None


def _uses(known: PoolFacts, name: str, pod: AskedPod, pool: str) -> list[PodUse]:
    """Who asks for units of a pool; the pod itself only where it has them."""
    has = pod.state.node is not None and pod.state.ended is None
    return [one for one in uses_of(known.pod.rows, pool) if has or one.pod != name]


async def _seen(client: KubeClient, namespace: str, answers: Sequence[PoolAnswer], wanted: Sequence[str]) -> _Seen:
    nodes, problem = await _nodes(client, wanted[:NODES_ASKED_MAX])
    quotas: dict[str, Sequence[RowDict]] = {}
    quotas_problem = ""
    for one in answers:
        if one.finding not in HAS_OR_NEEDS_NONE:
            quotas[one.ask.resource], quotas_problem = await quotas_on(client, one.ask.resource, namespace)
    return _Seen(nodes, problem, quotas, quotas_problem)


async def _nodes(client: KubeClient, names: Sequence[str]) -> tuple[dict[str, Object | None], str]:
    gate = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(name: str) -> Answer[Object]:
        async with gate:
            try:
                return Answer(await client.get(NODES, name))
            except NotFoundError:
                return Answer(None)
            except RefusedError as error:
                return Answer(None, str(error))

    found = await asyncio.gather(*map(ask, names))
    problem = next((one.problem for one in found if one.problem), "")
    return {name: one.value for name, one in zip(names, found, strict=True) if not one.problem}, problem


def _hindrances(pod: Object, state: PoolFacts, wanted: Iterable[str], seen: _Seen) -> Hindrances:
    """What keeps the pod off nodes; of a node that Kubernetes did not tell of, the ledger has the labels."""
    return {
        name: _of_node(pod, seen.nodes[name]) if name in seen.nodes else _by_labels(pod, state, name) for name in wanted
    }


def _of_node(pod: Object, node: Object | None) -> tuple[Hindrance, ...]:
    return (Hindrance(Barrier.GONE),) if node is None else hindrances(pod, node)


def _by_labels(pod: Object, state: PoolFacts, name: str) -> tuple[Hindrance, ...]:
    row = state.node.get(name)
    if row is None or row.labelled_at is None:
        return ()
    return tuple(selection(pod, Node(name, orjson.loads(row.labels))))


def _lacking(state: PoolFacts, pod: Object, answers: Sequence[PoolAnswer]) -> dict[str, list[str]]:
    rows = [row for one in answers if (row := state.pool.get(one.ask.pool)) is not None]
    return {row.subject: untolerated(pod, read_spec(row.said).said) for row in rows}


def _notes(
    answers: Sequence[PoolAnswer], seen: _Seen, wanted: int, lacking: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """What was not looked at, and what may be in the way besides."""
    yield from asked_notes(wanted, seen.nodes_problem)
    if any(one.finding is Finding.FITS for one in answers):
        yield ONLY_UNITS
    if seen.quotas_problem:
        yield f"Quotas were not looked at: {seen.quotas_problem}"
    for pool, taints in lacking.items():
        if taints:
            yield f"The pod does not tolerate taints that {pool} has for its nodes: {', '.join(taints)}."
