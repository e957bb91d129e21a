"""The drains of nodes that are not over yet, folded from the ledger. Pure.

What was reported of a drain keeps it fresh: it takes longer than an intent may be old, and one that nobody has worked
on for long is history.
"""

from datetime import datetime
from sys import intern
from typing import Final, NamedTuple

import orjson

from gpuledger.domain.fact import Fact, Handlers, counted_as_recorded
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.maintenance.rows import drains_text
from gpuledger.domain.table import TableSpec
from gpuledger.edge.nodewriter.node_intents import NodeIntents
from gpuledger.events.maintenance import (
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeDrainTimedOut,
    OwnedDrain,
)

DrainOutcome = NodeDrainFinished | NodeDrainSuperseded
DrainReport = NodeDrainProgressed | NodeDrainTimedOut


_NONE_BEGUN: Final = json_text({})


class DrainIntent(NamedTuple):
    """A drain that is not over. `intent` is the id of its event, `desired` its drains as a JSON array.

    `time` is when it was decided, `recorded_at` when the ledger learnt it, `fresh_at` the earlier of both for it or
    its last report, `reports` how many there are, `correlation` the first event of its chain. `begun` is a JSON object
    of owners to when work on their drains was first reported, be it by an intent before that had the same request.
    """

    node: str
    intent: str
    uid: str
    desired: str
    time: datetime
    recorded_at: datetime
    imported: bool
    correlation: str
    fresh_at: datetime
    reports: int
    has_timed_out: bool
    begun: str

    @property
    def drains(self) -> tuple[OwnedDrain, ...]:
        """What each owner wants drained."""
        return tuple(map(OwnedDrain.model_validate, orjson.loads(self.desired)))

    @property
    def begun_at(self) -> dict[str, datetime]:
        """When work on the drains of each owner was first reported; without those that have not begun."""
        return {owner: datetime.fromisoformat(time) for owner, time in orjson.loads(self.begun).items()}

    def with_begun(self, at: datetime) -> "DrainIntent":
        """The intent with all of its drains begun, at that time at the latest."""
        begun = orjson.loads(self.begun)
        missing = {one.owner: at.isoformat() for one in self.drains if one.owner not in begun}
        return self._replace(begun=json_text({**begun, **missing})) if missing else self


NEWEST_DRAIN: Final = TableSpec("newest_drain", DrainIntent, ("node",))
OLDER_DRAIN: Final = TableSpec("older_drain", DrainIntent, ("intent",))


class DrainIntents(NodeIntents[DrainIntent]):
    """The drains that are not over."""

    def __init__(self) -> None:
        super().__init__(NEWEST_DRAIN, OLDER_DRAIN)

    def reported(self, node: str, intent: str, fresh_at: datetime, *, has_timed_out: bool) -> None:
        """Work on a drain went on."""
        row = self.newest.get(node)
        if row is not None and row.intent == intent:
            has_timed_out = has_timed_out or row.has_timed_out
            fresh_at = max(fresh_at, row.fresh_at)
            row = row if row.reports else row.with_begun(fresh_at)
            row = row._replace(fresh_at=fresh_at, reports=row.reports + 1, has_timed_out=has_timed_out)
            self.newest.put(row)


def _changed(state: DrainIntents, fact: Fact, data: NodeDrainChanged) -> None:
    event, node = fact.event, intern(fact.event.subject)
    if not data.drains:
        state.decided(node, None)
        return
    recorded_at = counted_as_recorded(event, fact.recorded_ns)
    intent = DrainIntent(
        node, event.id, data.uid, drains_text(data.drains), event.time, recorded_at, event.imported,
        event.correlation_id or event.id, min(event.time, recorded_at), 0, False,
        _begun_before(state.newest.get(node), data.drains),
    )  # fmt: skip
    state.decided(node, intent)


def _begun_before(before: DrainIntent | None, drains: tuple[OwnedDrain, ...]) -> str:
    """Which of the drains had begun by the intent before: another owner that joins gives nobody's pods more time."""
    if before is None:
        return _NONE_BEGUN
    same = {one.owner for one in drains if one in before.drains}
    return json_text({owner: time for owner, time in orjson.loads(before.begun).items() if owner in same})


def _reported(state: DrainIntents, fact: Fact, data: DrainReport) -> None:
    event = fact.event
    if not event.imported:
        fresh_at = min(event.time, counted_as_recorded(event, fact.recorded_ns))
        is_late = isinstance(data, NodeDrainTimedOut)
        state.reported(event.subject, data.intent, fresh_at, has_timed_out=is_late)


def _over(state: DrainIntents, fact: Fact, data: DrainOutcome) -> None:
    state.settled(fact.event.subject, data.intent)


DRAIN_HANDLERS: Handlers = {
    NodeDrainChanged: _changed,
    NodeDrainProgressed: _reported,
    NodeDrainTimedOut: _reported,
    NodeDrainFinished: _over,
    NodeDrainSuperseded: _over,
}
