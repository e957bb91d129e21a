"""Why claims have no devices: what every request finds in every pool, and whether one node can meet them all. Pure.

The result for one request and one device is exact, as the allocator decides it. Whether all requests can be met at once
is searched within bounds; if these do not suffice, the explanation says so.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpuledger.domain.dra.candidates import Candidate, ClusterDevices, VisiblePool
from gpuledger.domain.dra.constraints import DeviceConstraint, of_view
from gpuledger.domain.dra.matching import RESULTS_MAX
from gpuledger.domain.dra.objects import LabelledNode, PoolId
from gpuledger.domain.dra.placement import Allows, PendingClaim, Placement, nodes_of, place_claims
from gpuledger.events.claim import Request, Wish


class InPool(NamedTuple):
    """The devices of a pool as one request finds them; `node` is None if they do not belong to one node.

    `constraints` are the pool's own, which all its devices share.
    """

    pool: PoolId
    node: str | None
    candidates: tuple[Candidate, ...]
    constraints: tuple[DeviceConstraint, ...] = ()


class OptionAnswer(NamedTuple):
    """What one wish of a request meets; `problem` is what keeps it from meeting anything."""

    request: str
    wish: Wish
    pools: tuple[InPool, ...]
    problem: str = ""

    @property
    def label(self) -> str:
        """The name as a claim's results write it."""
        return self.request if self.wish.name == self.request else f"{self.request}/{self.wish.name}"

    @property
    def candidates(self) -> list[Candidate]:
        """All devices."""
        return [one for pool in self.pools for one in pool.candidates]


class RequestAnswer(NamedTuple):
    """What a request finds, for each of its alternatives."""

    name: str
    options: tuple[OptionAnswer, ...]


class ClaimAnswer(NamedTuple):
    """What a claim's requests find; `problem` is one that no free device could solve."""

    claim: str
    requests: tuple[RequestAnswer, ...]
    problem: str = ""


class Explanation(NamedTuple):
    """The whole explanation; `knows_nodes` says whether there are labels of nodes to judge by."""

    claims: tuple[ClaimAnswer, ...]
    together: Placement
    knows_nodes: bool


def explain(
    cluster: ClusterDevices,
    claims: Sequence[PendingClaim],
    node: LabelledNode | None = None,
    allows: Allows | None = None,
) -> Explanation:
    """What the claims find, from a node or anywhere; `allows` is false for nodes that their user cannot use."""
    visible_pools = list(cluster.visible_pools() if node is None else cluster.visible_from(node))
    answers = tuple(
        ClaimAnswer(
            one.claim,
            tuple(_request(cluster, visible_pools, request) for request in one.requested.requests),
            _problem(one),
        )
        for one in claims
    )
    nodes = [one for one in ([node] if node else nodes_of(cluster)) if allows is None or allows(one)]
    return Explanation(answers, place_claims(cluster, claims, nodes), bool(cluster.nodes))


def _problem(pending: PendingClaim) -> str:
    """Whether it requests more devices than a claim can have."""
    least = sum(
        min((1 if wish.mode == "All" else wish.count for wish in request.wishes), default=0)
        for request in pending.requested.requests
    )
    if least <= RESULTS_MAX:
        return ""
    return f"{least} devices are requested, and a claim can have no more than {RESULTS_MAX}"


def _request(cluster: ClusterDevices, visible_pools: Iterable[VisiblePool], request: Request) -> RequestAnswer:
    return RequestAnswer(
        request.name, tuple(_option(cluster, visible_pools, request.name, wish) for wish in request.wishes)
    )


def _option(cluster: ClusterDevices, visible_pools: Iterable[VisiblePool], request: str, wish: Wish) -> OptionAnswer:
    if cluster.selectors(wish) is None:
        return OptionAnswer(request, wish, (), f"DeviceClass {wish.device_class} does not exist")
    return OptionAnswer(request, wish, tuple(_in_pool(cluster, visible, wish) for visible in visible_pools))


def _in_pool(cluster: ClusterDevices, visible: VisiblePool, wish: Wish) -> InPool:
    node = visible.node.name if visible.node else None
    return InPool(visible.pool, node, tuple(cluster.candidates(visible, wish)), tuple(of_view(visible.view)))
