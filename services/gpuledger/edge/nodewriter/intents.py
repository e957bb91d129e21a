"""The intents about nodes that have no outcome yet, folded from the ledger. Pure.

The newest intent about a node is the one to carry out; those before it are superseded. A fold of the whole log leaves
nothing where every intent has its outcome, so losing the rows leads to no second action.
"""

from datetime import datetime
from sys import intern
from typing import Final, NamedTuple

import orjson

from gpuledger.domain.fact import Fact, Handlers, counted_as_recorded
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.table import Table, TableSpec
from gpuledger.edge.nodewriter.drain_intents import DRAIN_HANDLERS, DrainIntents
from gpuledger.edge.nodewriter.holders import HOLDER_HANDLERS, Holders
from gpuledger.events.maintenance import (
    Isolation,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeIsolationFailed,
    NodeIsolationSuperseded,
)
from gpuledger.projection.definition import Projection

Outcome = NodeIsolationApplied | NodeIsolationFailed | NodeIsolationSuperseded


class Intent(NamedTuple):
    """An intent without an outcome. `intent` is the id of its event, `desired` its isolation as a JSON object.

    `time` is when it was decided, `recorded_at` when the ledger learnt it, `correlation` the first event of its chain.
    """

    node: str
    intent: str
    uid: str
    desired: str
    time: datetime
    recorded_at: datetime
    imported: bool
    correlation: str

    @property
    def isolation(self) -> Isolation:
        """How the node is to be set aside."""
        return Isolation.model_validate(orjson.loads(self.desired))


NEWEST_INTENT: Final = TableSpec("newest_intent", Intent, ("node",))
OLDER_INTENT: Final = TableSpec("older_intent", Intent, ("intent",))


class Intents(DrainIntents, Holders):
    """The newest intent about each node without an outcome, and older ones; drains, and who holds which devices."""

    def __init__(self) -> None:
        super().__init__()
        self.newest = Table(NEWEST_INTENT)
        self.older = Table(OLDER_INTENT, "node")
        self.newest.never_written()
        self.older.never_written()
        self._touched: dict[str, None] = {}

    def nodes(self) -> list[str]:
        """The nodes about which there are intents without an outcome."""
        return sorted({*self.newest.rows, *(row.node for row in self.older.rows.values())})

    def about(self, node: str) -> list[Intent]:
        """The intents about a node without an outcome, the newest one last."""
        newest = self.newest.get(node)
        return [*self.older.where("node", node), *([] if newest is None else [newest])]

    def is_newest(self, intent: Intent) -> bool:
        """Whether no later intent about its node was recorded."""
        found = self.newest.get(intent.node)
        return found is not None and found.intent == intent.intent

    def decided(self, intent: Intent) -> None:
        """An intent was recorded."""
        before = self.newest.get(intent.node)
        if before is not None and before.intent != intent.intent:
            self.older.put(before)
        self.newest.put(intent)
        self._touched[intent.node] = None

    def settled(self, node: str, intent: str) -> None:
        """An intent has an outcome."""
        self.older.delete(intent)
        newest = self.newest.get(node)
        if newest is not None and newest.intent == intent:
            self.newest.delete(node)

    def take_touched(self) -> list[str]:
        """The nodes about which intents were recorded since the last call."""
        touched, self._touched = self._touched, {}
        return list(touched)


def _changed(state: Intents, fact: Fact, data: NodeIsolationChanged) -> None:
    event = fact.event
    recorded_at = counted_as_recorded(event, fact.recorded_ns)
    state.decided(
        Intent(
            intern(event.subject), event.id, data.uid, json_text(data.isolation.model_dump(mode="json")), event.time,
            recorded_at, event.imported, event.correlation_id or event.id,
        )
    )  # fmt: skip


def _settled(state: Intents, fact: Fact, data: Outcome) -> None:
    state.settled(fact.event.subject, data.intent)


HANDLERS: Handlers = {
    NodeIsolationChanged: _changed,
    NodeIsolationApplied: _settled,
    NodeIsolationFailed: _settled,
    NodeIsolationSuperseded: _settled,
    **DRAIN_HANDLERS,
    **HOLDER_HANDLERS,
}


class IntentsProjection(Projection):
    """Folds the intents, which stay in memory, and in snapshots."""

    name = "intents"
    version = 5
    specs = ()
    handlers = HANDLERS
    state_class = Intents
