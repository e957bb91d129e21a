"""Reboots of simulated nodes: one is down for a while, in which no pod comes to it, and then boots. Pure."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpuledger.tools.simulation.allocation import FleetAllocation
from gpuledger.tools.simulation.schedule import Schedule


class NodeWentDown(NamedTuple):
    """A node shuts down to reboot."""

    at_s: float
    node: str


class NodeBooted(NamedTuple):
    """A node is up again, with another boot of its kernel."""

    at_s: float
    node: str


RebootHappening = NodeWentDown | NodeBooted


class Reboots:
    """Takes nodes down for `down_s` each; `retry` schedules what waits for a node that is up again."""

    def __init__(
        self,
        schedule: Schedule[Any],
        allocation: FleetAllocation,
        down_s: float,
        retry: Callable[[str], list[Any]],
    ) -> None:
        self._schedule = schedule
        self._allocation = allocation
        self._down_s = down_s
        self._retry = retry

    def reboot(self, node: str) -> list[RebootHappening]:
        """Take a node down; one that is down already stays as it is."""
        if node in self._allocation.down:
            return []
        self._allocation.down.add(node)
        self._schedule.add(self._down_s, self._boot, node)
        return [NodeWentDown(self._schedule.now_s, node)]

    def _boot(self, node: str) -> list[Any]:
        self._allocation.down.discard(node)
        return [NodeBooted(self._schedule.now_s, node), *self._retry(node)]
