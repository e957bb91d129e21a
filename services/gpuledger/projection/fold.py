"""The one way from log to rows, shared by live projections, rebuilds, time travel, verification and tests.

It drops repeats by the sources' own numbers, passes over what the edge got wrong, stops at what one of our services got
wrong, and folds the rest. It has no I/O, no clock and no randomness.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from gpuledger.domain.fact import PAGES_PER_EVENT_MAX, ROWS_MISSING, AbsentRowsError, Fact, Handler, State, Touched
from gpuledger.domain.sources.deduplication import Seen
from gpuledger.events.catalogue import registry
from gpuledger.events.envelope import Decoded, Undecoded, encode, nats_subject_of
from gpuledger.events.errors import EventError, EventTimeError
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN, Generations, Offset, Position, generations_of, is_origin
from gpuledger.events.publishing import Rule
from gpuledger.events.registry import Registry
from gpuledger.ledger.api import Message
from gpuledger.ledger.identity import Anchor, LedgerIdentity, anchor_of
from gpuledger.projection.checker import Checked, Checker
from gpuledger.projection.decision_size import is_too_large, problem_of
from gpuledger.projection.definition import (
    NOT_PUBLISHED,
    Decision,
    Decisions,
    Numbering,
    Observed,
    Projection,
    RefusalKind,
    RefusedEvent,
    Report,
    event_of,
    follow_rules,
)
from gpuledger.projection.enforced import EnforcedRules, InForce
from gpuledger.projection.errors import BadEventError, DueError, ProjectionError
from gpuledger.projection.hearing import REPORT_ACCEPTED, Hearing, is_ordinary, reading
from gpuledger.projection.log_numbers import LogNumbers
from gpuledger.projection.outstanding import Outstanding
from gpuledger.projection.returns import Returns
from gpuledger.projection.route import recorded_origin


class Fold:
    """A projection's state at a position, and the decisions that have not come back yet.

    Where nobody `publishes`, decisions are folded and only the ids of those that have not come back are kept. It shares
    `numbers` with others, or has its own, `seen` up to its position. A log has one `generation` or several.
    """

    def __init__(
        self,
        projection: Projection,
        generation: int | Generations,
        *,
        state: State | None = None,
        seen: Seen | None = None,
        numbers: LogNumbers | None = None,
        expected: Iterable[Decoded] = (),
        skipped: Iterable[Position] = (),
        numbering: Numbering = NOT_PUBLISHED,
        sequence: Offset = ORIGIN,
        publishes: bool = True,
        enforced: EnforcedRules | None = None,
        catalogue: Registry = registry,
    ) -> None:
        self.projection = projection
        self.generations = generations_of(generation)
        self.state: State = projection.new_state() if state is None else state
        self.enforced = enforced or EnforcedRules()
        self.sequence, self.numbering, self.events = sequence, numbering, 0
        self.decision_bytes_max: int | None = None
        """How large a decision may be; None where decisions are not published."""
        self.returns: Returns | None = None
        """Checks own events as they come; None where decisions are not published."""
        self._last: Message | None = None
        self._agreed: InForce | None = None
        self.decided, self.encodings, self._publishes = list[Decoded](), dict[str, bytes](), publishes
        self.waiting = Outstanding(expected, publishes=publishes)
        self._skipped = {position.sequence for position in skipped if self.generations.has(position)}
        self._catalogue, self._hearing = catalogue, Hearing(projection)
        self.seen = (seen or Seen()) if numbers is None else numbers.seen
        self._numbers = numbers or self.seen
        self.checker = Checker(self.enforced.copy(), self._skipped, catalogue)
        self._source, self._reads, self._decides = projection.source, projection.reads, projection.decides
        self._interrupted: tuple[Fact, Handler, str, InForce]
        follow_rules(projection, self.state, self.enforced.in_force)

    @property
    def generation(self) -> int:
        """The generation that the last message that was folded is in."""
        return self.generations.of(self.sequence)

    def begin(self, identity: LedgerIdentity) -> None:
        """Prepare the state for the first message; nothing happens behind that."""
        if is_origin(self.sequence):
            self.projection.begin(self.state, identity)

    def apply_all(self, messages: Sequence[Message]) -> None:
        """Fold messages in the order of the log; raises BadEventError where this build fails, or one of ours is bad."""
        self.apply_all_checked(map(self.checker.check, messages))

    def apply(self, message: Message) -> None:
        """Fold one message; raises as `apply_all` does."""
        self._apply_next(self.checker.check(message))

    def check_all(self, messages: Iterable[Message]) -> list[Checked]:
        """Check messages, which are then folded, where nobody else has done it."""
        return list(map(self.checker.check, messages))

    def apply_all_checked(self, messages: Iterable[Checked]) -> None:
        """Fold messages that were checked, perhaps for several folds; raises as `apply_all`."""
        list(self.applied(messages))  # Nobody reads rows back here: a handler that lacks some stops the projection.

    def applied(self, messages: Iterable[Checked]) -> Iterator[Touched]:
        """Fold messages that were checked; yields the retired rows to read back before it goes on; raises as `apply`.

        The first time it looks ahead to those that the messages behind may touch.
        """
        batch = messages if isinstance(messages, list) else list(messages)
        heard = None if self._skipped else self._hearing.heard(batch, self._numbers, self._agreed)
        apply, each = (self._apply_next, batch) if heard is None else (self._apply, heard)
        looks_ahead = True
        for at, checked in enumerate(reading(batch, each, self._read) if self._reads and heard is not None else each):
            try:
                apply(checked)
            except AbsentRowsError as absent:
                yield [*absent.touched, *(self.touched(each[at + 1 :]) if looks_ahead else ())]
                looks_ahead = False
                yield from self._call_again()
        if heard is not None:
            self.events += len(batch) - len(heard)
            self._last, self.sequence = batch[-1].message, batch[-1].message.sequence

    def _call_again(self) -> Iterator[Touched]:
        """Call the handler that lacked rows again, now that they are there; it may find that it needs others."""
        for _ in range(PAGES_PER_EVENT_MAX):
            try:
                return self._fold(*self._interrupted)
            except AbsentRowsError as absent:
                yield absent.touched
        raise BadEventError(self.projection.name, self._position, self._interrupted[2], ROWS_MISSING)

    def _read(self, checked: Checked) -> None:
        message, self.sequence = checked.message, checked.message.sequence
        self._take_answers(message.subject, self.projection.read, message, checked.event, self.generations)

    def _apply_next(self, checked: Checked) -> None:
        message = checked.message
        if self._reads:
            self._read(checked)
        is_skipped = message.sequence in self._skipped
        if not is_skipped and self._hearing.passes(checked, self._agreed) and checked.counts(self._numbers):
            self.events += 1
            self.sequence, self._last = message.sequence, message
        else:
            self._apply(checked)

    def _apply(self, checked: Checked) -> None:
        """Fold one message.

        A position that is skipped uses up its number all the same, so that a projection that had gone past it before
        and one that skips it agree on what is missing.
        """
        message, event, error = checked.message, checked.event, checked.error
        self.sequence, self._last = message.sequence, message
        if not self._skipped and is_ordinary(checked, self._numbers, self._agreed):
            self.events += 1
            self._apply_counted(checked)
            return
        try:
            is_new = checked.is_new(self._numbers)
        except EventError as too_many:
            event, error = None, too_many
        if event is None:
            self._reject(message, None, error)
            return
        self.events += is_new
        if is_new and not self._agrees(checked.checked_by):
            checked = self.checker.check(message, self.enforced)
        if message.sequence in self._skipped:
            self._skip(message, event, is_new=is_new)
        elif not is_new:
            if self.returns and event.source == self._source:
                self.returns.repeats(message.sequence, event, self.waiting.get(event.id))
            self._repeat(message, event)
        elif checked.route is None:
            self._reject(message, event, checked.error)
        else:
            self._apply_counted(checked)

    def _agrees(self, checked_by: InForce) -> bool:
        """Whether others have checked by the rules that are enforced here; if not, it is checked again."""
        if checked_by is not self._agreed:
            if checked_by.rules != self.enforced.in_force.rules:
                return False
            self._agreed = checked_by
        return True

    def _apply_counted(self, checked: Checked) -> None:
        """Fold an event that counts."""
        message, event, route = checked.message, checked.event, checked.route
        assert event is not None, "it counts"
        assert route is not None, "it counts"
        if checked.enforces is not None:
            self._agreed = None
            self.enforced.add(checked.enforces)
            follow_rules(self.projection, self.state, self.enforced.in_force)
        data, handler, observes = None, None, self._hearing.observes(event.type)
        if route.rule is not None:
            handler = self._hearing.handler(event.type, route)
            if handler is not None or observes:
                try:
                    data = checked.data(self._catalogue)
                except EventError as error:
                    self._reject(message, event, error)
                    return
        if observes:
            self._observe(message, event, checked.in_force, is_known=checked.is_known)
        if event.source == self._source and self._is_back(message, event, data):
            return
        if handler is None:
            if event.type == REPORT_ACCEPTED:
                self._hear_report(message, event, checked)
            return
        if route.is_open or checked.hears(judges=self.projection.judges):
            self._fold(checked.fact(self._catalogue), handler, message.subject, checked.in_force)

    def due(self, now: datetime) -> None:
        """Fold what the passing of time alone leads to; raises DueError where this build fails at it."""
        self._take_due(self.projection.due, self.state, now)

    def touched(self, batch: Iterable[Checked]) -> Touched:
        """The paged rows that messages may touch; raises BadEventError where this build fails at one."""
        for message, fact in self._hearing.facts(batch, self._catalogue):
            if message.sequence in self._skipped:
                continue
            try:
                yield from self.projection.touched(self.state, fact)
            except Exception as error:
                position, reason = self.generations.position(message.sequence), f"`touched` raised {error!r}."
                raise BadEventError(self.projection.name, position, message.subject, reason) from error

    def enforce(self, rules: Collection[Rule], now: datetime) -> None:
        """Have the projection decide that these rules are enforced, as far as they are not, and this build's types."""
        missing = self.enforced.missing(rules)
        if rules:
            missing += self.enforced.other_types(self._catalogue.introduced)
        self._take_due(self.projection.enforce, missing, now)

    @property
    def anchor(self) -> Anchor | None:
        """The anchor at the last message that was folded here, None before the first."""
        last = self._last
        return None if last is None else anchor_of(last.sequence, last.subject, last.data)

    def take_decided(self) -> list[Decoded]:
        """The decisions since the last call, in order; it forgets their `encodings`, by id, of what was checked."""
        decided, self.decided, self.encodings = self.decided, [], {}
        return decided

    def outstanding(self) -> list[Decoded]:
        """The decisions that have not come back, in the order in which they were made."""
        return self.waiting.all()

    def renumber(self, decisions: Iterable[Decoded], following: Numbering) -> None:
        """Note the numbers that decisions got when they were published, and those of the decisions to come."""
        self.numbering = following
        for event in decisions:
            self.waiting.add(event)

    def adopt(self, decisions: Iterable[Decoded]) -> None:
        """Fold decisions that were made elsewhere at this position and have not come back."""
        for event in decisions:
            if event.id not in self.waiting:
                self._expect(event)

    def _is_back(self, message: Message, event: Undecoded, data: Payload | None) -> bool:
        """Whether an own event is a decision that was folded when it was made."""
        if not self.projection.still_holds(event):
            return False
        if self.returns:
            self.returns.came(message.sequence, event, self.waiting.get(event.id), data)
        return self.waiting.came_back(event, data, message.sequence)

    def _skip(self, message: Message, event: Undecoded, *, is_new: bool) -> None:
        """Follow the numbering all the same; if this build fails even at that, the operator skips that as well.

        An own decision has come back, as it has for a leader that went past it before: it is not published again.
        """
        if is_new and event.source == self._source and self.projection.still_holds(event):
            self.waiting.skip(event.id)
        with suppress(BadEventError):
            if not is_new:
                self._repeat(message, event)
            elif self._hearing.observes(event.type):
                self._observe(message, event, self.enforced.in_force)

    def _hear_report(self, message: Message, event: Undecoded, checked: Checked) -> None:
        """Fold the report that an event of `inventory` accepts, as if it stood here."""
        try:
            route, fact = checked.report(self.checker)
        except EventError as error:
            self._reject(message, event, error)
            return
        handler = self._hearing.handler(fact.event.type, route)
        if handler is not None and not self.projection.judges:
            self._fold(fact, handler, message.subject, checked.in_force)

    def _fold(self, fact: Fact, handler: Handler, subject: str, in_force: InForce) -> None:
        event = fact.event
        try:
            handler(self.state, fact, event.data)
        except AbsentRowsError:
            self._interrupted = (fact, handler, subject, in_force)
            raise
        except Exception as error:
            reason = f"It does not fold ({error!r})."
            raise BadEventError(self.projection.name, self._position, subject, reason) from error
        if not self._decides or event.source == self._source:
            return
        if self.projection.judges and type(event.data).PUBLISH_RULE.judged_since:
            self._take_answers(subject, self.projection.judge, Report(fact, in_force.reports_version))
        else:
            self._take_answers(subject, self.projection.decide, fact)

    def _take_answers(self, subject: str, answer: Callable[..., Decisions], *about: object) -> None:
        """Take what the projection decides; whatever it raises meanwhile stops it here, and not the process."""
        try:
            for decision in answer(self.state, *about):
                self._take(decision)
        except ProjectionError:
            raise
        except Exception as error:
            reason = f"`{answer.__name__}` raised {error!r}."
            raise BadEventError(self.projection.name, self._position, subject, reason) from error

    def _take_due(self, answer: Callable[..., Decisions], *about: object) -> None:
        try:
            for decision in answer(*about):
                self._take(decision)
        except Exception as error:
            reason = error.reason if isinstance(error, BadEventError) else f"`{answer.__name__}` raised {error!r}."
            raise DueError(self.projection.name, self._position, reason) from error

    def _take(self, decision: Decision) -> None:
        event = event_of(decision, self._source, self.numbering)
        if event.id in self.waiting:
            return
        if self.decision_bytes_max is not None:
            encoded = self.encodings[event.id] = encode(event)
            if problem := problem_of(event, encoded, self.decision_bytes_max):
                raise BadEventError(self.projection.name, self._position, nats_subject_of(event), problem)
        self.numbering = self.numbering._replace(next_number=event.number + 1)
        if self._publishes:
            self.decided.append(event)
        self._expect(event)

    def is_given_up(self, event: Decoded) -> bool:
        """Whether a decision is not published any more: operators skip it, or the ledger would not take it."""
        limit = self.decision_bytes_max
        return (limit is not None and is_too_large(event, limit)) or self.waiting.is_skipped(event.id)

    def _expect(self, event: Decoded) -> None:
        self.waiting.add(event)
        handler = self.projection.handlers.get(type(event.data))
        if handler is None:
            return
        try:
            handler(self.state, Fact(event, ORIGIN, 0), event.data)
        except Exception as error:
            reason = f"The decision {event.type} on {event.subject!r} does not fold ({error!r})."
            raise BadEventError(self.projection.name, self._position, nats_subject_of(event), reason) from error

    def _observe(self, message: Message, event: Undecoded, in_force: InForce, *, is_known: bool = True) -> None:
        size = len(message.data)
        observed = Observed._make((event, message.sequence, message.recorded_ns, size, is_known, in_force.rules))
        self._take_answers(message.subject, self.projection.observed, observed)

    def _reject(self, message: Message, event: Undecoded | None, error: EventError | None) -> None:
        assert error is not None, "whatever does not count says why"
        if message.sequence in self._skipped:
            return
        if not recorded_origin(message).is_edge and not isinstance(error, EventTimeError):
            raise BadEventError(self.projection.name, self._position, message.subject, str(error)) from error
        self._refuse(message, event, RefusalKind.REJECTED, str(error))

    def _repeat(self, message: Message, event: Undecoded) -> None:
        self._refuse(message, event, RefusalKind.DUPLICATE, "Its number was seen before.")

    def _refuse(self, message: Message, event: Undecoded | None, kind: RefusalKind, reason: str) -> None:
        subject, size = message.subject, len(message.data)
        refusal = RefusedEvent(kind, self._position, message.recorded_ns, subject, reason, event, size)
        self._take_answers(subject, self.projection.refused, refusal)

    @property
    def _position(self) -> Position:
        return self.generations.position(self.sequence)
