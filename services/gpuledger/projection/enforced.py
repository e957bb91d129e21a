"""The rules that a fold enforces, each since the position at which the ledger recorded it. Pure.

Folds of one log enforce the same rules at the same positions, whichever build recorded it and however often it is
folded: what stands before a rule is never judged by it.
"""

from collections.abc import Iterable, Mapping, Set
from datetime import UTC, datetime
from typing import NamedTuple

from gpuledger.domain.fact import State, counted_as_recorded, is_ahead, time_of_ns
from gpuledger.domain.histories import HISTORIES, seconds_of, time_of
from gpuledger.events.envelope import Undecoded
from gpuledger.events.errors import EventTimeError, ExcessError, PublisherError, TooOldError, UnknownEventTypeError
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN, Offset
from gpuledger.events.publisher import Publisher
from gpuledger.events.publishing import (
    EVENT_AHEAD_MAX,
    RULE_VERSIONS,
    Authority,
    PublishRule,
    Rule,
    SourceKind,
)
from gpuledger.events.registry import PREFIX
from gpuledger.ledger.api import Message

_SHORTENED = "history/"
"""How the rule begins that a history was shortened; the name of the history follows."""

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)

DECIDED = (Authority.SERVICE, Authority.OWN_SOURCE)
"""The authorities of what services decide."""


class EnforcedRule(NamedTuple):
    """A rule, its version, and the position from which on it is enforced.

    That a history was shortened is a rule as well, whose version is the time since which it is kept.
    """

    rule: str
    version: int
    sequence: Offset


class InForce:
    """The rules that are enforced at a place of the log; another place has another object, so that many may share it.

    `types` are the introduced types of events that are in force. Each has a rule of its own, whose version is odd while
    it is in force. `reports_version` is that of `Rule.DEVICE_REPORTS`, and 0 where it is not among them;
    `shared_version` that of `Rule.SHARED_SUBJECTS`. `histories` says since when those are kept that were shortened, and
    `refused_before` before which time facts of an aggregate count no more.
    """

    __slots__ = (
        "checks_bounds",
        "checks_publishers",
        "checks_times",
        "histories",
        "refused_before",
        "reports_version",
        "rules",
        "shared_version",
        "types",
    )

    def __init__(self, rules: Mapping[str, EnforcedRule]) -> None:
        self.rules = rules
        self.types = frozenset(one.rule for one in rules.values() if _is_type(one.rule) and one.version % 2)
        # Every event asks, and a rule's name takes long to hash.
        self.checks_publishers = Rule.PUBLISHERS in rules
        self.checks_times = Rule.EVENT_TIMES in rules
        self.checks_bounds = Rule.BOUNDS in rules
        self.reports_version = rules[Rule.DEVICE_REPORTS].version if Rule.DEVICE_REPORTS in rules else 0
        self.shared_version = rules[Rule.SHARED_SUBJECTS].version if Rule.SHARED_SUBJECTS in rules else 0
        self.histories = {
            rule.removeprefix(_SHORTENED): time_of(one.version)
            for rule, one in rules.items()
            if rule.startswith(_SHORTENED)
        }
        self.refused_before = {HISTORIES[name].aggregate or "": begins for name, begins in self.histories.items()}

    def check_bounds(self, publisher: Publisher, data: Payload) -> None:
        """Check that an event of the edge holds no more than one event may.

        Raises:
            ExcessError: it holds more.
        """
        excess = data.excess() if self.checks_bounds and publisher.is_edge else None
        if excess is not None:
            raise ExcessError(excess)


NOTHING_IN_FORCE = InForce({})


class EnforcedRules:
    """The rules that are enforced up to where the log was read, and which of them were not written yet."""

    def __init__(self, rules: Iterable[EnforcedRule] = ()) -> None:
        self.in_force = InForce({one.rule: one for one in rules})
        self._changed: dict[str, None] = {}
        self._recorded_ns = 0
        self._time_max = _LONG_AGO

    @property
    def rules(self) -> Mapping[str, EnforcedRule]:
        """The rules by name."""
        return self.in_force.rules

    def copy(self) -> "EnforcedRules":
        """The same rules, none of which is to be written."""
        return EnforcedRules(self.rules.values())

    def missing(self, rules: Iterable[Rule], versions: Mapping[str, int] = RULE_VERSIONS) -> list[EnforcedRule]:
        """Those of the rules that are not enforced yet, or not in the newest version; they stand nowhere yet."""
        return [EnforcedRule(rule, versions[rule], ORIGIN) for rule in rules if self._version(rule) < versions[rule]]

    def other_types(self, introduced: Set[str]) -> list[EnforcedRule]:
        """What brings these types into force, and takes others out of force, which this build does not know."""
        return [EnforcedRule(one, self._version(one) + 1, ORIGIN) for one in sorted(introduced ^ self.in_force.types)]

    def add(self, one: EnforcedRule) -> None:
        """Enforce a rule from its position on; the first record of a version counts.

        Raises:
            UnknownEventTypeError: this build cannot enforce it.
        """
        check_version(one.rule, one.version)
        if one.version > self._version(one.rule):
            self.in_force = InForce({**self.rules, one.rule: one})
            self._changed[one.rule] = None

    def check(
        self, publisher: Publisher, rule: PublishRule | None, aggregate: str, event: Undecoded, message: Message
    ) -> None:
        """Check an event by the rules that are enforced.

        A type that not every build knows has no publish rule. What services decide has times that follow from those of
        facts, so these are not checked.

        Raises:
            PublisherError: its source must not publish it.
            EventTimeError: it happened long after it was recorded.
            TooOldError: it happened before the history begins that it would change.
        """
        if self.in_force.checks_publishers and publisher.is_edge and rule is not None:
            reason = publisher.violation(rule, aggregate, event.subject, event.data)
            if reason is not None:
                raise PublisherError(f"{event.type}: {reason}")
        if self.in_force.refused_before and publisher.is_edge:
            _check_age(event, self.in_force.refused_before.get(aggregate))
        if self.in_force.checks_times and not self._is_in_time(event, message.recorded_ns):
            recorded_ns = message.recorded_ns
            if not _is_decided(rule, publisher):
                _check_time(event, recorded_ns)
            if recorded_ns > self._recorded_ns:
                self._recorded_ns, self._time_max = recorded_ns, time_of_ns(recorded_ns) + EVENT_AHEAD_MAX

    def renew(self) -> None:
        """Have every rule taken, for those who have none of them yet."""
        self._changed = dict.fromkeys(self.rules)

    def take_changes(self) -> list[EnforcedRule]:
        """The rules that were added since the last call."""
        changed, self._changed = self._changed, {}
        return [self.rules[rule] for rule in changed]

    def _version(self, rule: str) -> int:
        return self.rules[rule].version if rule in self.rules else 0

    def _is_in_time(self, event: Undecoded, recorded_ns: int) -> bool:
        """Whether an event is in time for sure, as almost all are: by a limit that is not worked out for each."""
        time, recorded_at = event.time, event.recorded_at
        return (
            recorded_ns >= self._recorded_ns and time <= self._time_max and (recorded_at is None or time <= recorded_at)
        )


def check_version(rule: str, version: int) -> None:
    """Return if this build can enforce this version of a rule.

    Raises:
        UnknownEventTypeError: it cannot.
    """
    if rule.startswith(_SHORTENED):
        if rule.removeprefix(_SHORTENED) not in HISTORIES:
            raise UnknownEventTypeError(f"This build does not know {rule!r}, which an operator shortened.")
    elif not _is_type(rule) and version > RULE_VERSIONS.get(rule, 0):
        raise UnknownEventTypeError(f"This build does not know version {version} of the rule {rule!r}.")


def shortened(history: str, begins: datetime, event: Undecoded, message: Message) -> EnforcedRule:
    """The rule that a history begins at a time, from the event on that says so."""
    version = seconds_of(begins, counted_as_recorded(event, message.recorded_ns))
    return EnforcedRule(rule_of_history(history), version, message.sequence)


def rule_of_history(history: str) -> str:
    """The name of the rule that a history was shortened."""
    return f"{_SHORTENED}{history}"


def shorten(state: State, in_force: InForce) -> None:
    """Have a state drop what ended before its histories begin."""
    if not in_force.histories:
        return
    for table in state.tables().values():
        begins = in_force.histories.get(table.spec.history or "")
        if begins is not None:
            table.shorten(begins)


def _is_decided(rule: PublishRule | None, publisher: Publisher) -> bool:
    """Whether an event says what a service decided; where nothing but its source shows that, all but watchers do."""
    if rule is not None:
        return rule.authority in DECIDED
    return not publisher.is_edge and publisher.kind is not SourceKind.WATCHERS


def _is_type(rule: str) -> bool:
    return rule.startswith(PREFIX)


def _check_age(event: Undecoded, begins: datetime | None) -> None:
    if begins is not None and event.time < begins:
        raise TooOldError(
            f"It happened at {event.time.isoformat()}, and an operator has shortened the history that it would change: "
            f"that is kept since {begins.isoformat()}."
        )


def _check_time(event: Undecoded, recorded_ns: int) -> None:
    if is_ahead(event, recorded_ns):
        raise EventTimeError(
            f"It happened at {event.time.isoformat()}, more than {EVENT_AHEAD_MAX.days} day after it was recorded at "
            f"{counted_as_recorded(event, recorded_ns).isoformat()}. Set the clock of {event.source}."
        )
