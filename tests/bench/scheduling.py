"""How long it takes in memory to schedule a cluster full of pods, by each strategy: the code of the extender, no HTTP.

Processor time of one process. The cluster and the pods are invented, with the sizes and shares of the openb trace: a
node in two has eight GPUs, and of the pods four in ten ask for a part of one. The peer is the strategy that compares
nothing.
"""

from functools import partial
from random import Random
from time import process_time
from typing import Final, NamedTuple

from bench.report import Figure
from bench.rounds import medians
from gpuledger.api.sharing import Strategy
from gpuledger.domain.sharing.machines import Needs
from gpuledger.domain.sharing.mix import ExpectedPods
from gpuledger.tools.scheduling.simulate import simulate
from gpuledger.tools.scheduling.strategies import STRATEGIES
from gpuledger.tools.scheduling.trace import request_for
from gpuledger.tools.scheduling.workload import SimulatedNode, SimulatedPod, fragmentation_of

MICROSECONDS: Final = 1_000_000
POD_US: Final = 20 * MICROSECONDS / 8_152
"""The openb trace in 20 seconds."""

NODES: Final = ((8, 96_000), (2, 96_000), (4, 96_000), (8, 128_000), (2, 64_000))
SHARES_MILLI: Final = (810, 470, 320, 650, 230, 460, 590, 160, 550, 220)
CPU_MILLI: Final = (2_000, 4_000, 6_000, 8_000, 12_000, 16_000)


class SchedulingSizes(NamedTuple):
    """How many nodes and pods there are."""

    nodes: int = 1_213
    pods: int = 8_152


FULL = SchedulingSizes()
QUICK = SchedulingSizes(40, 200)


async def scheduling(sizes: SchedulingSizes = FULL, rounds: int = 3) -> list[Figure]:
    """Microseconds a pod, by strategy."""
    nodes = [SimulatedNode(f"n{at}", gpus, cpu, 393_216) for at in range(sizes.nodes) for gpus, cpu in [NODES[at % 5]]]
    draw = Random(1)
    pods = [_pod(number, draw) for number in range(sizes.pods)]
    took = await medians({name: partial(_took, nodes, pods, name) for name in STRATEGIES}, rounds)
    each = {name: MICROSECONDS * seconds / sizes.pods for name, seconds in took.items()}
    first = each[Strategy.MINOR_ORDER]
    return [
        Figure(
            f"pods scheduled in memory, {name}", took_us, "us each", "the first node that fits", first, POD_US, False
        )
        for name, took_us in each.items()
    ]


def _pod(number: int, draw: Random) -> SimulatedPod:
    gpus, milli = (1, draw.choice(SHARES_MILLI)) if draw.random() < 0.4 else (draw.choice((1,) * 60 + (2, 4, 8)), 1_000)
    return SimulatedPod(f"p{number}", request_for(gpus, milli), Needs(draw.choice(CPU_MILLI), 8_192))


async def _took(nodes: list[SimulatedNode], pods: list[SimulatedPod], strategy: str, number: int) -> float:
    measured = fragmentation_of(pods)
    began = process_time()
    simulate(nodes, pods, strategy, expected=ExpectedPods(measured.mix), measured=measured, chance=Random(number))
    return process_time() - began
