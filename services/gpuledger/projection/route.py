"""Where the events of a type belong in the log, and who may record and who hears them. Pure."""

from typing import NamedTuple

from gpuledger.events.device import DeviceReportAccepted
from gpuledger.events.envelope import Decoded, Event, Undecoded, with_payload
from gpuledger.events.errors import EventError, SubjectError
from gpuledger.events.publisher import Publisher
from gpuledger.events.publishing import Authority, PublishRule
from gpuledger.events.registry import Registry, parse_type
from gpuledger.events.subjects import ROOT, Origin, escape, parse_subject, shared_subject
from gpuledger.ledger.api import Message
from gpuledger.projection.enforced import InForce

EPOCH_LENGTH_MAX = 128
"""What an event about an epoch can name; a source's own name is bounded as any subject is."""

BY_NODE = (Authority.OWN_NODE, Authority.OWN_DEVICE)
"""The authorities of types of which not every event is heard: that depends on the node of its agent."""


class Route(NamedTuple):
    """The words of a type's subjects, and who may publish.

    Nobody knows who may publish a type that this build does not know. Where `is_open`, every event that is in order is
    heard.
    """

    aggregate: str
    event: str
    rule: PublishRule | None
    reserved: tuple[str, ...]
    is_introduced: bool = False
    """Whether an edge event of the type counts only where the type is in force; one of our own always does."""

    is_open: bool = True

    @property
    def is_registered(self) -> bool:
        """Whether this build knows the type."""
        return self.rule is not None

    def check(self, nats_subject: str, publisher: Publisher, event: Undecoded, shared_version: int = 0) -> None:
        """Check that an event is recorded where its publisher may record it.

        Where a version of `Rule.SHARED_SUBJECTS` is enforced, that may be the shared form of its subject. Our own
        services' events of a type that this build does not know are in order as well: a newer build recorded them, and
        a projection that folds them has another version there.

        Raises:
            SubjectError: it stands under a subject that is not its own, or that is reserved.
        """
        named = f"{publisher.prefix}{self.aggregate}.{escape(event.subject)}.{self.event}"
        is_named = nats_subject == named
        if not is_named and nats_subject != shared_subject(named, shared_version):
            raise mismatch(nats_subject, event)
        if not publisher.prefix.startswith(self.reserved):
            raise SubjectError(f"Only {' or '.join(f'{one}>' for one in self.reserved)} may record {event.type}.")

    def before_in_force(self) -> "Route":
        """The route of an event before its type is in force."""
        return unregistered_route(self.aggregate, self.event)

    def rule_in_every_build(self, publisher: Publisher) -> PublishRule | None:
        """The rule by which an event is checked in builds that know its type and in those that do not.

        One of our own that is introduced has none: what it counts as follows from its source.
        """
        return None if self.is_introduced and not publisher.is_edge else self.rule

    def hears(self, publisher: Publisher, event: Undecoded, in_force: InForce, *, judges: bool) -> bool:
        """Whether the handler gets the event itself, in a projection that judges reports or in another.

        Where `Rule.DEVICE_REPORTS` is enforced, who judges gets an agent's report on a device, and nobody else does.
        Before `Rule.PUBLISHERS`, an agent that spoke of another node was not heard, and that is all that is left of it.
        """
        if self.is_open or self.rule is None:
            return True
        judged_since = self.rule.judged_since
        if judged_since is not None:
            is_judged = in_force.reports_version >= judged_since and publisher.node is not None
            if judges or is_judged:
                return judges and is_judged
            if self.rule.authority not in BY_NODE:
                return True
        if self.rule.authority is Authority.OWN_DEVICE and len(self.rule.publishers) > 1:
            return True
        is_gateway = publisher.node is None and publisher.kind in self.rule.publishers
        return is_gateway or publisher.is_about_own_node(self.aggregate, event.subject, event.data)


def route_of(event_type: str, catalogue: Registry) -> Route:
    """The route of a type.

    Raises:
        UnknownEventTypeError: it has not the form of a type.
    """
    name = parse_type(event_type)
    if not catalogue.knows(event_type):
        return unregistered_route(name.aggregate, name.event)
    rule = catalogue.rule_of(name)
    is_introduced, is_open = event_type in catalogue.introduced, rule.authority not in BY_NODE and not rule.judged_since
    return Route(name.aggregate, name.event, rule, rule.reserved_prefixes, is_introduced, is_open)


def unregistered_route(aggregate: str, event: str) -> Route:
    """The route of an event whose type is not known: anybody may record it under their own subjects."""
    return Route(aggregate, event, None, (f"{ROOT}.",))


def accepted_report(event: Undecoded) -> Undecoded:
    """The agent's report that a `device.report-accepted` event accepts.

    Raises:
        EventError: the event does not decode.
    """
    verdict = with_payload(event).data
    assert isinstance(verdict, DeviceReportAccepted), "it has this type"
    return _report(event, verdict)


def _report(event: Event[object], verdict: DeviceReportAccepted) -> Undecoded:
    return Event(
        verdict.report,
        f"/nodes/{verdict.node}/agent",
        verdict.type,
        event.subject,
        event.time,
        verdict.data,
        verdict.epoch,
        verdict.number,
        None,
        event.correlation_id,
        event.recorded_at,
        event.imported,
    )


def accepted(event: Decoded, verdict: DeviceReportAccepted) -> Decoded:
    """As `accepted_report`, of an event that is decoded, with the report's payload; raises as that does."""
    return with_payload(_report(event, verdict))


def recorded_origin(message: Message) -> Origin:
    """The origin under which a message is recorded, which the server has checked."""
    try:
        return parse_subject(message.subject).origin
    except EventError:
        tokens = [*message.subject.split("."), "", ""]
        return Origin(tokens[1], tokens[2])


def mismatch(subject: str, event: Undecoded) -> EventError:
    """The error for an event that says something else than its subject."""
    return SubjectError(
        f"The event says source {event.source!r}, type {event.type!r} and subject {event.subject!r}, which do not "
        f"belong under {subject!r}."
    )
