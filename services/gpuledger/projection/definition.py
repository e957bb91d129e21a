"""Defines a projection: a fold over tables, and the decisions that may follow from it. Pure; no I/O, no clock.

A subclass names its tables and handlers. A decider also answers with decisions: they are folded at once, written to
the outbox with the rows, published after the commit, and passed over when they come back.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from gpuledger.domain.fact import Fact, Handlers, Touched
from gpuledger.domain.table import TableSpec
from gpuledger.events.envelope import Decoded, Event, Undecoded
from gpuledger.events.ids import derived_id
from gpuledger.events.payload import Payload
from gpuledger.events.position import Generations, Offset, Position
from gpuledger.ledger.api import Message
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.projection.enforced import EnforcedRule, InForce, shorten


class Decision(NamedTuple):
    """An event that a decider wants recorded. Its own id follows from `cause`, the id of the event that led to it."""

    cause: str
    correlation_id: str | None
    subject: str
    time: datetime
    data: Payload


class Numbering(NamedTuple):
    """Where a decider's own numbering stands."""

    epoch: str
    next_number: int


NOT_PUBLISHED = Numbering("unpublished", 1)
"""The numbering of decisions that are folded and compared, but never published."""


def event_of(decision: Decision, source: str, numbering: Numbering) -> Decoded:
    """The event that a decision is recorded as. Its id follows from its cause, so whoever decides it gives the same."""
    epoch, number = numbering
    data = decision.data
    event_id = derived_id(decision.cause, data.TYPE, decision.subject)
    correlation_id = decision.correlation_id or decision.cause
    return Event(
        event_id,
        source,
        data.TYPE,
        decision.subject,
        decision.time,
        data,
        epoch,
        number,
        decision.cause,
        correlation_id,
    )


class Causation:
    """Names the cause of each decision that follows from a fact, and gives the decision its time.

    The second decision of a type about the same subject follows from the first one, so that each has its own id.
    `time` never lies before the fact, nor before an earlier decision about the same thing.
    """

    def __init__(self, fact: Fact, not_before: datetime | None = None) -> None:
        event = fact.event
        self.time = event.time if not_before is None else max(event.time, not_before)
        self._cause = event.id
        self._correlation = event.correlation_id or event.id
        self._following: dict[tuple[str, str], str] = {}

    def decision(self, subject: str, data: Payload, not_before: datetime | None = None) -> Decision:
        """A decision about `subject`, at `not_before` at the earliest."""
        key = (data.TYPE, subject)
        cause = self._following.get(key, self._cause)
        self._following[key] = derived_id(cause, *key)
        if not_before is not None:
            self.time = max(self.time, not_before)
        return Decision(cause, self._correlation, subject, self.time, data)


class RefusalKind(Enum):
    """Why an event of the log is passed over."""

    DUPLICATE = "duplicate"
    REJECTED = "rejected"


class Observed(NamedTuple):
    """An event that is in order, its data as it came, and the size of its message in bytes.

    One of the edge whose type is not known yet counts, and changes no row of any other projection. `rules` are those
    that are enforced here.
    """

    event: Undecoded
    sequence: Offset
    recorded_ns: int
    size: int
    is_known: bool = True
    rules: Mapping[str, EnforcedRule] = MappingProxyType({})


class RefusedEvent(NamedTuple):
    """An event that every projection passes over. `event` is None where not even the envelope could be read."""

    kind: RefusalKind
    position: Position
    recorded_ns: int
    nats_subject: str
    reason: str
    event: Undecoded | None
    size: int


class Report(NamedTuple):
    """An agent's report on a device, and the version of `Rule.DEVICE_REPORTS` that is enforced where it stands."""

    fact: Fact
    rule_version: int


Decisions = Iterable[Decision]


class Projection:
    """A fold with its tables; subclasses override what they need."""

    name: ClassVar[str]
    version: ClassVar[int]
    same_rows_as: ClassVar[tuple[int, ...]] = ()
    """The versions of older builds whose rows are the same, so that they are taken over as they are.

    An older build does not know this version, and stands aside: for what goes with the rows has changed.
    """

    specs: ClassVar[Sequence[TableSpec[Any]]]
    """Its tables, in the order of its state: a reader and a rebuild, which lock them one by one, must not cross."""

    handlers: ClassVar[Handlers]
    state_class: ClassVar[type[Any]]
    decides: ClassVar[bool] = False
    """Whether it may return decisions; its events then have the source `/services/<name>`."""

    survives_restore: ClassVar[bool] = True
    """Whether its decisions still hold in a log that a restore recorded anew, so that none is made again there."""

    observes: ClassVar[bool] = False
    """Whether `observed` is to be called; most projections need only their handlers.

    Who observes all events also finds what does not decode, handled or not; the others decode what they handle. Either
    way such an event counts, uses up its number and changes no row, so that what it counts as depends on nobody's
    handlers.
    """

    observed_types: ClassVar[frozenset[str]] = frozenset()
    """The types of the events that `observed` is called with; all where it names none."""

    judges: ClassVar[bool] = False
    """Whether it decides which of the agents' reports on devices count; it alone hears the reports themselves.

    Only where `Rule.DEVICE_REPORTS` is enforced: before, it hears none, and all others hear them.
    """

    reads: ClassVar[bool] = False
    """Whether `read` is to be called with every message, whatever it holds."""

    forgotten_by_effects: ClassVar[frozenset[str]] = frozenset()
    """Tables of pending work: rows leave also when the work is done, which no fold of the log alone knows."""

    pages: ClassVar[bool] = False
    """Whether `touched` is to be asked before each batch, because retired rows may have to come back.

    Where nearly no batch needs any, handlers say so instead: see `AbsentRowsError`. Only then `touched` is asked, about
    the rest of the batch, and need not name all.
    """

    @property
    def source(self) -> str:
        """The source of its decisions."""
        return f"/services/{self.name}"

    def takes_over(self, version: int) -> bool:
        """Whether rows of a version are those of this one, or are made so without another fold of the log."""
        return version in (self.version, *self.same_rows_as)

    def new_state(self) -> Any:  # noqa: ANN401 - each has its own state, which is a `State`
        """An empty state."""
        return self.state_class()

    def begin(self, state: Any, identity: LedgerIdentity) -> None:  # noqa: ANN401 - each has its own state
        """Called before the first message of a generation."""

    def still_holds(self, decision: Undecoded) -> bool:
        """Whether one of its decisions holds in this log, which a restore may have recorded anew."""
        return decision.recorded_at is None or self.survives_restore

    def follow_rules(self, state: Any, in_force: InForce) -> None:  # noqa: ANN401 - each has its own state
        """Called where a fold begins, and wherever another rule is enforced from there on."""

    def read(
        self,
        state: Any,  # noqa: ANN401, ARG002 - each has its own state
        message: Message,  # noqa: ARG002
        event: Undecoded | None,  # noqa: ARG002
        generations: Generations,  # noqa: ARG002
    ) -> Decisions:
        """Called for every message, as it was recorded, before anything else becomes of it.

        `event` is its envelope, None where that is not in order.
        """
        return ()

    def touched(self, state: Any, fact: Fact) -> Touched:  # noqa: ANN401, ARG002 - most projections keep all their rows
        """The paged rows that an event may touch, asked before it is folded; see `pages`."""
        return ()

    def observed(self, state: Any, observed: Observed) -> Decisions:  # noqa: ANN401, ARG002 - each has its own state
        """Called for every event in order, handled or not, before it is folded."""
        return ()

    def refused(self, state: Any, refusal: RefusedEvent) -> Decisions:  # noqa: ANN401, ARG002
        """Called for every event that is passed over."""
        return ()

    def decide(self, state: Any, fact: Fact) -> Decisions:  # noqa: ANN401, ARG002
        """Called after a handled event was folded, unless it was a decision of its own."""
        return ()

    def judge(self, state: Any, report: Report) -> Decisions:  # noqa: ANN401, ARG002
        """Called in place of `decide` for an agent's report on a device, where the projection `judges`."""
        return ()

    def enforce(self, missing: Sequence[EnforcedRule], now: datetime) -> Decisions:  # noqa: ARG002
        """The decisions that enforce these rules; only the service `sources` decides that."""
        return ()

    def due(self, state: Any, now: datetime) -> Decisions:  # noqa: ANN401, ARG002
        """The decisions that follow from the passing of time alone; the writer asks for them."""
        return ()


def follow_rules(projection: Projection, state: Any, in_force: InForce) -> None:  # noqa: ANN401 - each has its own state
    """Have a fold's state follow the rules that are enforced from here on."""
    projection.follow_rules(state, in_force)
    shorten(state, in_force)
