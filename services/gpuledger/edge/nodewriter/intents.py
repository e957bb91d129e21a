"""The intents about nodes that have no outcome yet, folded from the ledger. Pure.

A fold of the whole log leaves nothing where every intent has its outcome, so losing the rows leads to no second action.
"""

from datetime import datetime
from sys import intern
from typing import Final, NamedTuple

import orjson

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.fact import Fact, Handlers, counted_as_recorded, within
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.table import TableSpec
from gpuledger.edge.nodewriter.drain_intents import DRAIN_HANDLERS, DrainIntents
from gpuledger.edge.nodewriter.holders import HOLDER_HANDLERS, Holders
from gpuledger.edge.nodewriter.node_intents import NodeIntents
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


class Intents(Holders):
    """The isolations and drains of nodes that have no outcome, and who holds which devices."""

    def __init__(self, names: SharingNames | None = None) -> None:
        super().__init__(names)
        self.drains = DrainIntents()
        self.newest_drain, self.older_drain = self.drains.newest, self.drains.older
        self.isolations = NodeIntents(NEWEST_INTENT, OLDER_INTENT)
        self.newest, self.older = self.isolations.newest, self.isolations.older


def _changed(state: Intents, fact: Fact, data: NodeIsolationChanged) -> None:
    event = fact.event
    recorded_at = counted_as_recorded(event, fact.recorded_ns)
    intent = Intent(
        intern(event.subject), event.id, data.uid, json_text(data.isolation.model_dump(mode="json")), event.time,
        recorded_at, event.imported, event.correlation_id or event.id,
    )  # fmt: skip
    state.isolations.decided(intent.node, intent)


def _settled(state: Intents, fact: Fact, data: Outcome) -> None:
    state.isolations.settled(fact.event.subject, data.intent)


HANDLERS: Handlers = {
    NodeIsolationChanged: _changed,
    NodeIsolationApplied: _settled,
    NodeIsolationFailed: _settled,
    NodeIsolationSuperseded: _settled,
    **within("drains", DRAIN_HANDLERS),
    **HOLDER_HANDLERS,
}


class IntentsProjection(Projection):
    """Folds the intents, which stay in memory, and in snapshots."""

    name = "intents"
    version = 5
    specs = ()
    handlers = HANDLERS
    state_class = Intents
