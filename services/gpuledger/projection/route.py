"""Where the events of a type belong in a fold, and what it does with them. Pure."""

from typing import NamedTuple

from gpuledger.domain.fact import Handler
from gpuledger.events.envelope import Undecoded
from gpuledger.events.publishing import Authority, PublishRule, is_about_own_node
from gpuledger.events.subjects import ROOT


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
