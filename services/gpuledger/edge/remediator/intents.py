"""The remediations that the remediator has something to do for, folded from the ledger. Pure.

One without an outcome is to be created, or watched; one whose object has to be deleted after its outcome is kept until
that is done. A fold of the whole log leaves nothing else, so losing the rows leads to no second object.
"""

from datetime import datetime, timedelta
from sys import intern
from typing import Final, NamedTuple

from gpuledger.domain.fact import Fact, Handlers, TableState, counted_as_recorded
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.remediation.rules import request_of
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.remediation import (
    RemediationCancelled,
    RemediationCreated,
    RemediationFinished,
    RemediationObjectDeleted,
    RemediationRequested,
    RemediationSuperseded,
)
from gpuledger.projection.definition import Projection


class RemedyIntent(NamedTuple):
    """A remediation; `intent` is the id of its event, `request` its data as a JSON object.

    `time` is when it was decided, `recorded_at` when the ledger learnt it, `correlation` the first event of its chain.
    `created_at` is when its object was found to be there, `object_uid` that object's uid; `delete_at` is when the
    object is to be deleted, after the outcome.
    """

    intent: str
    node: str
    request: str
    time: datetime
    recorded_at: datetime
    imported: bool
    correlation: str
    is_cancelled: bool
    created_at: datetime | None
    object_uid: str
    delete_at: datetime | None

    @property
    def data(self) -> RemediationRequested:
        """What is to be done."""
        return request_of(self.request)


INTENT: Final = TableSpec("remedy_intent", RemedyIntent, ("intent",))


class RemedyIntents(TableState):
    """The remediations for which something is to be done."""

    def __init__(self) -> None:
        self.intent = Table(INTENT)
        self.intent.never_written()
        self._touched: dict[str, None] = {}

    def ids(self) -> list[str]:
        """All of them."""
        return sorted(self.intent.rows)

    def get(self, intent: str) -> RemedyIntent | None:
        """The remediation of an id."""
        return self.intent.get(intent)

    def put(self, row: RemedyIntent) -> None:
        """Something about a remediation was recorded."""
        self.intent.put(row)
        self._touched[row.intent] = None

    def over(self, intent: str) -> None:
        """Nothing more is to be done for it."""
        self.intent.delete(intent)

    def take_touched(self) -> list[str]:
        """Those about which something was recorded since the last call."""
        touched, self._touched = self._touched, {}
        return list(touched)


def _requested(state: RemedyIntents, fact: Fact, data: RemediationRequested) -> None:
    event = fact.event
    recorded_at = counted_as_recorded(event, fact.recorded_ns)
    request = json_text(data.model_dump(mode="json"))
    state.put(
        RemedyIntent(
            event.id, intern(event.subject), request, event.time, recorded_at, event.imported,
            event.correlation_id or event.id, False, None, "", None,
        )
    )  # fmt: skip


def _cancelled(state: RemedyIntents, _fact: Fact, data: RemediationCancelled) -> None:
    row = state.get(data.intent)
    if row is not None:
        state.put(row._replace(is_cancelled=True))


def _created(state: RemedyIntents, fact: Fact, data: RemediationCreated) -> None:
    row = state.get(data.intent)
    if row is not None:
        state.put(row._replace(created_at=fact.event.time, object_uid=data.uid))


def _finished(state: RemedyIntents, fact: Fact, data: RemediationFinished) -> None:
    row = state.get(data.intent)
    if row is None or row.delete_at is not None:
        return
    retention_s = row.data.retention_s
    if not row.object_uid or retention_s is None:
        state.over(row.intent)
    else:
        state.put(row._replace(delete_at=fact.event.time + timedelta(seconds=retention_s)))


def _over(state: RemedyIntents, _fact: Fact, data: RemediationSuperseded | RemediationObjectDeleted) -> None:
    state.over(data.intent)


HANDLERS: Handlers = {
    RemediationRequested: _requested,
    RemediationCancelled: _cancelled,
    RemediationCreated: _created,
    RemediationFinished: _finished,
    RemediationSuperseded: _over,
    RemediationObjectDeleted: _over,
}


class RemedyIntentsProjection(Projection):
    """Folds the remediations, which stay in memory, and in snapshots."""

    name = "remedy_intents"
    version = 1
    specs = ()
    handlers = HANDLERS
    state_class = RemedyIntents
