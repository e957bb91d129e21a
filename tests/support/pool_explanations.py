"""Explanations of pools for tests: pools as the real decider has them, and pods that request their units."""

from gpuledger.tools.explain.pools import NodeConstraints, PodState, PodUse, PoolAnswer, UnitRequest, answer
from support.pools import PoolsLog, pool

WAITING = PodState()
POOL, UNITS = "team-a/a", "gpu.deckhouse.io/a"


def explained_pool(
    pools: PoolsLog,
    units: int,
    *uses: PodUse,
    pod: PodState = WAITING,
    constraints: NodeConstraints | None = None,
    only: str | None = None,
) -> PoolAnswer:
    """The answer for a pod that requests so many units of the pool."""
    return answer(pools.state, UnitRequest(UNITS, POOL, units), uses, pod, constraints=constraints, only=only)


def cards(**by_node: int) -> PoolsLog:
    """The pool with so many cards set up on each node."""
    pools = PoolsLog().begin()
    pools.record(POOL, pool())
    for node, number in by_node.items():
        pools.begin(node, devices=number)
        for device in range(number):
            pools.assign(f"{node}-{device}", POOL)
    return pools


def pod_on(node: str | None, units: int, pod: str = "team-a/other") -> PodUse:
    """A pod that requests units, and has them if it is on a node."""
    return PodUse(pod, node, units)
