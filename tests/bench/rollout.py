"""How long it takes in memory to render the configurations of a fleet and to plan their rollout, and to fold a report.

Processor time of one process: the decider's fold, no servers. The peer is a fold that does nothing with the same
messages, but to check and decode them.
"""

from collections.abc import Sequence
from functools import partial
from itertools import count
from time import process_time
from typing import Final, NamedTuple

from bench.report import Figure
from bench.rounds import medians
from gpuledger.domain.fact import TableState
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.machine_config import NodeConfigReported
from gpuledger.events.node import NodeLabelled
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from support.machine_configs import config_file, config_pool, machine_config
from support.rollout import at, machine, message_of, new_fold, source_of

MICROSECONDS: Final = 1_000_000
PLAN_S: Final = 2.0
"""The most that it may take to render and plan all pools of the full size."""

REPORTS: Final = 200
POOL_SIZES: Final = (100, 1_000)
KINDS: Final = ("rollout", "nothing")
WAITED_S: Final = 100


class RolloutSizes(NamedTuple):
    """How many nodes, MachineConfigs and pools there are."""

    nodes: int = 5_000
    configs: int = 200
    pools: int = 50
    reporting: tuple[int, ...] = POOL_SIZES


FULL = RolloutSizes()
QUICK = RolloutSizes(100, 10, 5, (10, 20))


class Nothing(Projection):
    """Hears what the rollout hears, and does nothing with it."""

    name = "nothing"
    version = 1
    specs = ()
    state_class = TableState

    def __init__(self, like: Projection) -> None:
        self.handlers = dict.fromkeys(like.handlers, lambda _state, _fact, _data: None)  # type: ignore[misc]


class FleetLog:
    """A log in memory that nobody has folded yet."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._numbers: dict[str, count[int]] = {}

    def record(self, subject: str, data: Payload, at_s: float) -> None:
        """Record a fact."""
        source = source_of(subject, data)
        number = next(self._numbers.setdefault(source, count(1)))
        self.append(Event(f"{source}/{number}", source, data.TYPE, subject, at(at_s), data, "q", number), at_s)

    def append(self, event: Decoded, at_s: float) -> None:
        """Record an event that somebody has made."""
        self.messages.append(message_of(event, at(at_s), len(self.messages) + 1))


async def rollout(sizes: RolloutSizes = FULL, rounds: int = 3) -> list[Figure]:
    """The seconds of rendering and planning all pools, and the microseconds of a report by the size of its pool."""
    folded = {name: partial(_folded, sizes, name) for name in KINDS}
    took = await medians({"planned": partial(_planned, sizes), **folded}, rounds)
    fleet = f"{sizes.pools} pools, {sizes.nodes} nodes, {sizes.configs} configurations"
    nothing = ("a fold of nothing", took["nothing"])
    figures = [
        Figure(f"{fleet}: rendered and planned", took["planned"], "s", *nothing, PLAN_S, is_ratio=False),
        Figure(f"{fleet}: facts of all of them folded", took["rollout"], "s", *nothing, None),
    ]
    for size in sizes.reporting:
        each = await medians({name: partial(_reported, size, name) for name in KINDS}, rounds)
        name = f"a report of a node, in a pool of {size}"
        cost, peer = (MICROSECONDS * each[one] / REPORTS for one in KINDS)
        figures.append(Figure(name, cost, "us each", "a fold of nothing", peer, None))
    return figures


async def _planned(sizes: RolloutSizes, _round: int) -> float:
    """The ends of all waits, and what follows from them."""
    log, fold = _fleet(sizes), new_fold()
    first = len(log.messages)
    fold.apply_all(log.messages)
    began = process_time()
    fold.due(at(WAITED_S))
    ended = [one for one in fold.take_decided() if one.time == at(WAITED_S)]
    for event in ended:
        log.append(event, WAITED_S)
    fold.apply_all(log.messages[first:])
    took = process_time() - began
    assert len(ended) == sizes.pools, "each pool waits"
    assert len(fold.take_decided()) >= 3 * sizes.pools, "each has a configuration, a node that drains, and a state"
    return took


async def _folded(sizes: RolloutSizes, kind: str, _round: int) -> float:
    """The facts before: definitions, Nodes and their labels."""
    return _took(_folding(new_fold(), kind), _fleet(sizes).messages)


def _fleet(sizes: RolloutSizes) -> FleetLog:
    log = FleetLog()
    for number in range(sizes.pools):
        of_pool = {"labels": {"pool": f"p{number}"}}
        log.record(f"p{number}", config_pool(node_selector=of_pool, config_selector=of_pool, uid=f"p{number}"), 1)
    for number in range(sizes.configs):
        files = [config_file(f"/etc/gpu.d/{number}-{file}.conf", f"value = {number}\n" * 20) for file in range(5)]
        labels = {"pool": f"p{number % sizes.pools}"}
        log.record(f"c{number}", machine_config(*files, labels=labels), 2)
    for number in range(sizes.nodes):
        _add_node(log, f"n{number}", f"p{number % sizes.pools}", f"z{number % 3}")
    return log


def _add_node(log: FleetLog, name: str, pool: str, zone: str) -> None:
    labels = {"pool": pool, "topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
    log.record(name, NodeLabelled(uid=f"uid-{name}", labels=labels), 3)
    log.record(name, machine(name, current_revision="older", agent_state="done"), 3)


async def _reported(size: int, kind: str, _round: int) -> float:
    """Reports of nodes of one pool, each of which changes what its pool says."""
    log = FleetLog()
    log.record("p0", config_pool(debounce_s=0), 1)
    log.record("c0", machine_config(config_file()), 2)
    for number in range(size):
        _add_node(log, f"n{number}", "p0", f"z{number % 3}")
    fold, first = _folding(new_fold(), kind), len(log.messages)
    fold.apply_all(log.messages)
    for number in range(REPORTS):
        pending = bool(number // size % 2) is False
        data = NodeConfigReported(state="done", current_revision="older", reboot_pending=pending)
        log.record(f"n{number % size}", data, 4 + number)
    return _took(fold, log.messages[first:])


def _took(fold: Fold, messages: Sequence[Message]) -> float:
    began = process_time()
    fold.apply_all(messages)
    return process_time() - began


def _folding(fold: Fold, kind: str) -> Fold:
    return fold if kind == "rollout" else new_fold(Nothing(fold.projection))
