"""Answers about pods and pools for tests: pools as the real decider has them, and pods that ask for their units."""

from gpuledger.tools.explain.pools import Ask, Hindrances, PodState, PodUse, PoolAnswer, answer
from support.pools import Pools, pool

WAITING = PodState()
POOL, UNITS = "team-a/a", "gpu.deckhouse.io/a"


def asked(
    pools: Pools,
    units: int,
    *uses: PodUse,
    pod: PodState = WAITING,
    hindrances: Hindrances | None = None,
    only: str | None = None,
) -> PoolAnswer:
    """What is to be said of a pod that asks for so many units of the pool."""
    return answer(pools.state, Ask(UNITS, POOL, units), uses, pod, hindrances=hindrances, only=only)


def cards(**by_node: int) -> Pools:
    """The pool with so many cards set up on each node."""
    pools = Pools().begin()
    pools.say(POOL, pool())
    for node, number in by_node.items():
        pools.begin(node, devices=number)
        for device in range(number):
            pools.assign(f"{node}-{device}", POOL)
    return pools


def on(node: str | None, units: int, pod: str = "team-a/other") -> PodUse:
    """A pod that asks for units, and has them if it is on a node."""
    return PodUse(pod, node, units)
