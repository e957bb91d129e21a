"""A decider to try the machinery with: at most so many nodes may be away at once, whoever asks.

A node's `node.registered` requests its removal, and its decommissioning follows while there is room;
`slot.declared` for a node brings it back. Time alone gives every node back after a while.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gpuledger.domain.fact import Fact
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.slot import SlotDeclared
from gpuledger.projection.definition import Decision, Projection

AWAY_MAX = 2
AWAY_AT_MOST = timedelta(hours=100_000)


class Away(NamedTuple):
    """A node that asked, and since when it is away (None: it waits)."""

    node: str
    registered_by: str
    since: datetime | None
    times: int


AWAY = TableSpec("away", Away, ("node",))


SPECS = (AWAY,)


class AwayState:
    def __init__(self) -> None:
        self.away = Table(AWAY)

    def tables(self) -> Mapping[str, Table[Any]]:
        return {"away": self.away}

    def count(self) -> int:
        """How many are away."""
        return sum(row.since is not None for row in self.away.rows.values())


def _registered(state: AwayState, fact: Fact, _data: NodeRegistered) -> None:
    row = state.away.get(fact.event.subject) or Away(fact.event.subject, fact.event.id, None, 0)
    state.away.put(row)


def _taken(state: AwayState, fact: Fact, _data: NodeDecommissioned) -> None:
    row = state.away.rows[fact.event.subject]
    state.away.put(row._replace(since=fact.event.time, times=row.times + 1))


def _back(state: AwayState, fact: Fact, data: SlotDeclared) -> None:
    state.away.delete(data.node)


class AwayProjection(Projection):
    """Decides who may be away."""

    name = "away"
    version = 1
    specs = SPECS
    handlers = {NodeRegistered: _registered, NodeDecommissioned: _taken, SlotDeclared: _back}
    decides = True

    def new_state(self) -> AwayState:
        return AwayState()

    def decide(self, state: AwayState, fact: Fact) -> Iterable[Decision]:
        for row in list(state.away.rows.values()):
            if row.since is None and state.count() < AWAY_MAX:
                yield Decision(row.registered_by, None, row.node, fact.event.time, NodeDecommissioned())

    def due(self, state: AwayState, now: datetime) -> Iterable[Decision]:
        for row in list(state.away.rows.values()):
            if row.since is not None and row.since + AWAY_AT_MOST < now:
                cause = f"overdue/{row.node}/{row.since.isoformat()}"
                yield Decision(cause, None, f"slot-of-{row.node}", now, SlotDeclared(node=row.node))
