"""Explains why a pod has no units of the pools that it requests: the ledger's facts, and what Kubernetes adds.

Pools, devices and pods come from the ledger. Kubernetes adds what keeps the pod off the nodes that offer units, and the
quotas of the pod's namespace; where it cannot be asked, a note says what was not checked.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.kinds import NODES, PODS
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.dra.objects import LabelledNode
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.errors import RefusedError
from gpuledger.tools.cluster import KubeReply, concurrently, if_reachable, object_or_none, quotas_on
from gpuledger.tools.errors import ToolError
from gpuledger.tools.explain.access import Readable, readable
from gpuledger.tools.explain.node_fit import constraints, selection, untolerated
from gpuledger.tools.explain.pools import (
    HAS_OR_NEEDS_NONE,
    NODES_READ_MAX,
    Barrier,
    Finding,
    NodeConstraint,
    NodeConstraints,
    PodUse,
    PoolAnswer,
    UnitRequest,
    answer,
    checked_notes,
    judged_nodes,
    uses_of,
)
from gpuledger.tools.explain.pools_wording import NOT_PLACED, ONLY_UNITS, SEVERAL_POOLS
from gpuledger.tools.explain.query import QueriedPod, WhyQuery

NO_SCHEDULER: Final = (
    "No scheduler has reported anything about the pod; the API servers of `gpuledger up` and `kube-api` have none."
)

Quotas = Mapping[str, Sequence[Mapping[str, Any]]]
"""By resource the quotas on it."""


class UnitsExplanation(NamedTuple):
    """An answer for each pool; `may` says of which namespaces pods may be named.

    `untolerated` are by pool the taints that it declares and the pod does not tolerate.
    """

    answers: tuple[PoolAnswer, ...]
    may: Readable
    quotas: Quotas
    untolerated: Mapping[str, Sequence[str]]
    notes: tuple[str, ...]


class _Cluster(NamedTuple):
    """Nodes (None: Kubernetes has no such node) and quotas, and why some could not be read."""

    nodes: Mapping[str, Object | None]
    nodes_problem: str
    quotas: Quotas
    quotas_problem: str


async def explain_units(pools: PoolFacts, query: WhyQuery, pod: QueriedPod) -> UnitsExplanation:
    """Explain each pool whose units the pod requests.

    Raises:
        ToolError: the user may not read pods of its namespace, and Kubernetes has not shown this one.
    """
    requests = [
        (UnitRequest(resource, pool.id, number), _uses(pools, query.name, pod, pool.id))
        for resource, number in sorted(pod.units.items())
        if (pool := PoolRef.of_resource(resource, query.namespace)) is not None
    ]
    answers = [answer(pools, request, uses, pod.state, only=query.node) for request, uses in requests]
    namespaces = {use.pod.partition("/")[0] for _, uses in requests for use in uses} | {query.namespace}
    may = await readable(query.access, namespaces, PODS)
    if pod.object is None and not may.may_name(query.namespace):
        hint = "Ask for the right to get pods there"
        raise ToolError(f"You may not read Pods in namespace {query.namespace!r}", hint)
    notes = [SEVERAL_POOLS] if len(requests) > 1 else []
    if query.node is not None and pools.node.get(query.node) is None:
        notes.append(f"There is no node {query.node}.")
    judged = judged_nodes(answers)
    if pod.object is None or query.live_access is None:
        return UnitsExplanation(tuple(answers), may, {}, {}, (*notes, *([NOT_PLACED] if judged else [])))
    reply = await if_reachable(query.live_access, lambda client: _read(client, query.namespace, answers, judged))
    cluster = reply.value or _Cluster({}, reply.problem, {}, reply.problem)
    closed = _node_constraints(pod.object, pools, judged, cluster)
    answers = [
        answer(pools, request, uses, pod.state, constraints=closed, only=query.node) for request, uses in requests
    ]
    taints = _untolerated(pools, pod.object, answers)
    notes += _notes(answers, cluster, len(judged), taints)
    notes += [NO_SCHEDULER] if _is_unscheduled(pod, answers) else []
    return UnitsExplanation(tuple(answers), may, cluster.quotas, taints, tuple(notes))


def _is_unscheduled(pod: QueriedPod, answers: Sequence[PoolAnswer]) -> bool:
    """Whether a pod waits that could be placed, and about which no scheduler has reported anything."""
    could = any(one.finding is Finding.FITS for one in answers)
    return could and not pod.gates and pod.scheduler is None


def _uses(pools: PoolFacts, name: str, pod: QueriedPod, pool: str) -> list[PodUse]:
    """Who requests units of a pool; the pod itself only where it has them."""
    has = pod.state.node is not None and pod.state.ended is None
    return [one for one in uses_of(pools.pod.rows, pool) if has or one.pod != name]


async def _read(client: KubeClient, namespace: str, answers: Sequence[PoolAnswer], judged: Sequence[str]) -> _Cluster:
    nodes, problem = await _nodes(client, judged[:NODES_READ_MAX])
    quotas: dict[str, Sequence[Mapping[str, Any]]] = {}
    quotas_problem = ""
    for one in answers:
        if one.finding not in HAS_OR_NEEDS_NONE:
            quotas[one.request.resource], quotas_problem = await quotas_on(client, one.request.resource, namespace)
    return _Cluster(nodes, problem, quotas, quotas_problem)


async def _nodes(client: KubeClient, names: Sequence[str]) -> tuple[dict[str, Object | None], str]:
    async def read(name: str) -> KubeReply[Object]:
        try:
            return KubeReply(await object_or_none(client, NODES, name))
        except RefusedError as error:
            return KubeReply(None, str(error))

    replies = await concurrently(read, names)
    problem = next((one.problem for one in replies if one.problem), "")
    return {name: one.value for name, one in zip(names, replies, strict=True) if not one.problem}, problem


def _node_constraints(pod: Object, pools: PoolFacts, judged: Iterable[str], cluster: _Cluster) -> NodeConstraints:
    """What keeps the pod off nodes; a node that could not be read is judged by its labels alone."""
    return {
        name: _of_node(pod, cluster.nodes[name]) if name in cluster.nodes else _by_labels(pod, pools, name)
        for name in judged
    }


def _of_node(pod: Object, node: Object | None) -> tuple[NodeConstraint, ...]:
    return (NodeConstraint(Barrier.GONE),) if node is None else constraints(pod, node)


def _by_labels(pod: Object, pools: PoolFacts, name: str) -> tuple[NodeConstraint, ...]:
    row = pools.node.get(name)
    if row is None or row.labelled_at is None:
        return ()
    return tuple(selection(pod, LabelledNode(name, orjson.loads(row.labels))))


def _untolerated(pools: PoolFacts, pod: Object, answers: Sequence[PoolAnswer]) -> dict[str, list[str]]:
    rows = [row for one in answers if (row := pools.pool.get(one.request.pool)) is not None]
    return {row.subject: untolerated(pod, row.spec.definition) for row in rows}


def _notes(
    answers: Sequence[PoolAnswer], cluster: _Cluster, judged: int, taints: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """What was not checked, and what else may keep the pod waiting."""
    yield from checked_notes(judged, cluster.nodes_problem)
    if any(one.finding is Finding.FITS for one in answers):
        yield ONLY_UNITS
    if cluster.quotas_problem:
        yield f"Quotas were not checked: {cluster.quotas_problem}"
    for pool, untolerated_taints in taints.items():
        if untolerated_taints:
            yield f"The pod does not tolerate taints that {pool} has for its nodes: {', '.join(untolerated_taints)}."
