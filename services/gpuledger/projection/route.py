"""Where the events of a type belong in a fold, and what it does with them. Pure."""

from typing import NamedTuple

from gpuledger.domain.fact import Handler
from gpuledger.events.envelope import Undecoded
from gpuledger.events.errors import EventError, SubjectError
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.events.publishing import Authority, PublishRule, is_about_own_node
from gpuledger.events.subjects import ROOT, Origin, escape, origin_of, parse_subject
from gpuledger.ledger.api import Message


class Route(NamedTuple):
    """The words of a type's subjects, the handler if the projection has one, and who may publish.

    Nobody knows who may publish a type that this build does not know.
    """

    aggregate: str
    event: str
    handler: Handler | None
    rule: PublishRule | None
    reserved: tuple[str, ...]
    is_introduced: bool = False
    """Whether an edge event of the type counts only where the type is in force."""

    @property
    def is_known(self) -> bool:
        """Whether this build knows the type."""
        return self.rule is not None

    def as_unknown(self) -> "Route":
        """The route of an event before its type is in force."""
        return unknown_route(self.aggregate, self.event)

    def hears(self, event: Undecoded) -> bool:
        """Whether the handler gets the event: before `Rule.PUBLISHERS`, who spoke of another node was not heard."""
        if self.rule is None or self.rule.authority is not Authority.OWN_NODE:
            return True
        return is_about_own_node(event.source, self.aggregate, event.subject, event.data)


def unknown_route(aggregate: str, event: str) -> Route:
    """The route of an event whose type is not known: anybody may record it under their own subjects."""
    return Route(aggregate, event, None, None, (f"{ROOT}.",))


def prefix_of(source: str) -> str:
    """The prefix of all subjects of a source.

    Raises:
        SubjectError: it is no source, or too long for the subject of events about it.
    """
    origin = origin_of(source)
    if len(source) > NAME_LENGTH_MAX:
        raise SubjectError(f"source must be text of 1 to {NAME_LENGTH_MAX} characters.")
    escape(source)
    return f"{ROOT}.{origin.kind}.{escape(origin.name)}."


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
