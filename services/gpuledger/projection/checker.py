"""The part of reading the log that depends on no projection: what an event is worth to every fold alike. Pure.

A message is parsed once, held against its subject, the publish rules and the rules that are enforced, and its payload
decoded at most once, when the first fold needs it. What a single projection has seen, skips, handles or decides never
gets in here: folds of one process share what is found.
"""

from collections.abc import Iterable

from gpuledger.domain.fact import Fact
from gpuledger.domain.sources.deduplication import Seen
from gpuledger.events.catalogue import registry
from gpuledger.events.envelope import Undecoded, parse, with_data, with_payload
from gpuledger.events.errors import EventError, MalformedEventError
from gpuledger.events.history import HistoryShortened
from gpuledger.events.payload import Payload
from gpuledger.events.position import Offset
from gpuledger.events.publisher import Publisher, publisher_of
from gpuledger.events.registry import Registry
from gpuledger.events.rule import RuleEnforced
from gpuledger.ledger.api import Message
from gpuledger.projection.enforced import (
    NOTHING_IN_FORCE,
    EnforcedRule,
    EnforcedRules,
    InForce,
    check_version,
    shortened,
)
from gpuledger.projection.log_numbers import LogNumbers
from gpuledger.projection.route import EPOCH_LENGTH_MAX, Route, accepted_report, mismatch, route_of

_ENFORCING = (RuleEnforced.TYPE, HistoryShortened.TYPE)
"""The types of events from which on a rule is enforced."""


class Checked:
    """A message, and what became of it. It is shared, so nobody changes it.

    `event` is None where not even the envelope is in order, and `error` says why. Otherwise `error` says why an event
    whose number is new is passed over all the same, None that it counts, and then there is a `route`. That was found by
    the rules in `checked_by`; `enforces` is a rule that it adds to them, and `in_force` are those with it.

    `ordinary_type` is the type of an event that counts and enforces nothing, and empty for others; `source` is empty
    where there is no event. `counted_by` are the numbers by which its number was found to be new.
    """

    __slots__ = (
        "_data",
        "_fact",
        "_failure",
        "_is_new",
        "_numbers",
        "_report",
        "checked_by",
        "counted_by",
        "enforces",
        "error",
        "event",
        "in_force",
        "message",
        "ordinary_type",
        "publisher",
        "route",
        "source",
    )

    def __init__(
        self,
        message: Message,
        event: Undecoded | None,
        error: EventError | None,
        checked_by: InForce = NOTHING_IN_FORCE,
        *,
        publisher: Publisher | None = None,
        route: Route | None = None,
        in_force: InForce = NOTHING_IN_FORCE,
        enforces: EnforcedRule | None = None,
    ) -> None:
        self.message = message
        self.event = event
        self.error = error
        self.checked_by = checked_by
        self.publisher = publisher
        self.route = route
        self.in_force = in_force
        self.enforces = enforces
        self.ordinary_type = "" if event is None or route is None or enforces is not None else event.type
        self.source = "" if event is None else event.source
        self.counted_by: LogNumbers | Seen | None = None
        self._data: Payload | None = None
        self._fact: Fact | None = None
        self._failure: EventError | None = None
        self._report: tuple[Route, Fact] | EventError | None = None
        self._numbers: LogNumbers | Seen | None = None
        self._is_new: bool | EventError = False

    def is_new(self, numbers: LogNumbers | Seen) -> bool:
        """Whether there is an event whose number is new, by numbers that folds share, or by those of one fold.

        The numbers that were asked last are asked once. So folds with numbers of their own, which share messages, take
        a batch one after the other.

        Raises:
            HolesError: it would leave too many holes.
            NumbersChangedError: the numbers are not of this log any more.
        """
        if self._numbers is not numbers:
            try:
                if isinstance(numbers, LogNumbers):
                    self._is_new = numbers.is_new(self.message, self.event)
                else:
                    event = self.event
                    self._is_new = event is not None and numbers.add(event.source, event.epoch, event.number)
            except EventError as error:
                self._is_new = error
            self._numbers = numbers
            self.counted_by = numbers if self._is_new is True else None
        if isinstance(self._is_new, EventError):
            raise self._is_new
        return self._is_new

    def counts(self, numbers: LogNumbers | Seen) -> bool:
        """Whether its number is new; asking again changes nothing."""
        if self.counted_by is numbers:
            return True
        try:
            return self.is_new(numbers)
        except EventError:
            return False

    @property
    def is_known(self) -> bool:
        """Whether every build of this ledger knows the type of an event that counts."""
        event, _, route = self._counted
        return (route.rule is not None and not route.is_introduced) or event.type in self.in_force.types

    def hears(self, *, judges: bool) -> bool:
        """Whether the handler gets an event that counts, in a projection that judges reports or in another."""
        event, publisher, route = self._counted
        return route.hears(publisher, event, self.in_force, judges=judges)

    def data(self, catalogue: Registry) -> Payload:
        """The payload of an event that counts.

        Raises:
            EventError: it does not decode, or holds more than one event may.
        """
        if self._data is None:
            if self._failure is not None:
                raise self._failure
            event, publisher, _ = self._counted
            try:
                data = catalogue.decode(event.type, event.data)
                self.in_force.check_bounds(publisher, data)
            except EventError as error:
                self._failure = error
                raise
            self._data = data
        return self._data

    def fact(self, catalogue: Registry) -> Fact:
        """The fact that an event is; raises as `data`."""
        if self._fact is None:
            message = self.message
            event = with_data(self._counted[0], self.data(catalogue))
            self._fact = Fact._make((event, message.sequence, message.recorded_ns, self.in_force.rules))
        return self._fact

    def report(self, checker: "Checker") -> tuple[Route, Fact]:
        """The report that a `device.report-accepted` event accepts, as a fact that stands in its place, and its route.

        Raises:
            EventError: the event or the report does not decode.
        """
        if self._report is None:
            try:
                report = accepted_report(self._counted[0])
                route, message = checker.route(report.type), self.message
                decoded = with_payload(report, checker.catalogue)
                self._report = route, Fact(decoded, message.sequence, message.recorded_ns, self.in_force.rules)
            except EventError as error:
                self._report = error
        if isinstance(self._report, EventError):
            raise self._report
        return self._report

    @property
    def _counted(self) -> tuple[Undecoded, Publisher, Route]:
        assert self.event is not None, "it counts"
        assert self.publisher is not None, "it counts"
        assert self.route is not None, "it counts"
        return self.event, self.publisher, self.route


class Checker:
    """Checks messages in the order of the log, each once. Positions that operators skip enforce no rule."""

    def __init__(
        self,
        enforced: EnforcedRules | None = None,
        skipped: Iterable[Offset] = (),
        catalogue: Registry = registry,
    ) -> None:
        self.enforced = enforced or EnforcedRules()
        self.catalogue = catalogue
        self._skipped = set(skipped)
        self._routes: dict[str, Route] = {}

    def check(self, message: Message, enforced: EnforcedRules | None = None) -> Checked:
        """What a message is worth by its own rules, or by those that are given; never raises."""
        enforced = self.enforced if enforced is None else enforced
        try:
            event, publisher = _identified(message)
        except EventError as error:
            return Checked(message, None, error)
        checked_by = enforced.in_force
        try:
            route = self._routes.get(event.type) or self.route(event.type)
            if route.is_introduced and publisher.is_edge and event.type not in checked_by.types:
                route = route.before_in_force()
            route.check(message.subject, publisher, event, checked_by.shared_version)
            if checked_by.rules:
                rule = route.rule_in_every_build(publisher) if route.is_introduced else route.rule
                enforced.check(publisher, rule, route.aggregate, event, message)
            # One of the edge is of a type that is not known there, or is rejected.
            is_enforcing = event.type in _ENFORCING and route.is_registered
            enforces = self._enforced_by(event, message, enforced) if is_enforcing else None
        except EventError as error:
            return Checked(message, event, error, checked_by)
        in_force = enforced.in_force
        return Checked(
            message, event, None, checked_by, publisher=publisher, route=route, in_force=in_force, enforces=enforces
        )

    def route(self, event_type: str) -> Route:
        """The route of a type; raises as `route_of`."""
        route = self._routes.get(event_type)
        if route is None:
            route = route_of(event_type, self.catalogue)
            if route.is_registered:  # A hostile source invents any number of types.
                self._routes[event_type] = route
        return route

    def _enforced_by(self, event: Undecoded, message: Message, enforced: EnforcedRules) -> EnforcedRule:
        """Enforce the rule that an event names from here on, except where operators skip the event."""
        data = with_payload(event).data
        if isinstance(data, HistoryShortened):
            one = shortened(event.subject, data.before, event, message)
        else:
            assert isinstance(data, RuleEnforced), "it has one of these types"
            one = EnforcedRule(event.subject, data.version, message.sequence)
        check_version(one.rule, one.version)
        if message.sequence not in self._skipped:
            enforced.add(one)
        return one


def numbered_event(message: Message) -> Undecoded | None:
    """The event of a message, if its envelope is in order, so that its number counts as seen; else None."""
    try:
        return _identified(message)[0]
    except EventError:
        return None


def _identified(message: Message) -> tuple[Undecoded, Publisher]:
    event = parse(message.data)
    publisher = publisher_of(event.source)
    if not message.subject.startswith(publisher.prefix):
        raise mismatch(message.subject, event)
    if len(event.epoch) > EPOCH_LENGTH_MAX:
        raise MalformedEventError(f"sourceepoch must be text of 1 to {EPOCH_LENGTH_MAX} characters.")
    return event, publisher
