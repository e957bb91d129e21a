"""What a source is to those who read its events. It follows from the source's name alone, so it is found once. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpuledger.events.errors import SubjectError
from gpuledger.events.publishing import PublishRule, SourceKind, source_kind
from gpuledger.events.subjects import NAMES_KEPT_MAX, NODE, ROOT, SOURCE_LENGTH_MAX, escape, origin_of


@dataclass(frozen=True, slots=True)
class Publisher:
    """A source, the prefix of all its subjects, its kind, and the node that it is the agent of.

    A bad event from the edge stops nobody. `kind` is None if it publishes no event type.
    """

    source: str
    prefix: str
    kind: SourceKind | None
    node: str | None
    is_edge: bool

    def is_about_own_node(self, aggregate: str, subject: str, data: Mapping[str, Any]) -> bool:
        """Whether it is an agent, and an event's subject and data name no node but its own.

        The subject of an event about a device names no node, so this cannot say where the device is.
        """
        node = self.node
        if node is None:
            return False
        if aggregate == "node":
            return subject == node
        return aggregate != "allocation" or (subject.startswith(f"{node}/") and data.get("node", node) == node)

    def violation(self, rule: PublishRule, aggregate: str, subject: str, data: Mapping[str, Any]) -> str | None:
        """Why it must not publish an event, which follows from the event alone; None if it may."""
        if self.kind not in rule.publishers:
            return f"{self.source} may not publish it; only {' and '.join(rule.publishers)} may."
        if self.node is not None and not self.is_about_own_node(aggregate, subject, data):
            return f"{self.source} may not publish it about another node; {aggregate} {subject!r} is not of its own."
        return None


@lru_cache(maxsize=NAMES_KEPT_MAX)
def publisher_of(source: str) -> Publisher:
    """The publisher that a source is.

    Raises:
        SubjectError: it has none of the known shapes, or is too long for the subject of events about it.
    """
    origin = origin_of(source)
    if len(source) > SOURCE_LENGTH_MAX:
        raise SubjectError(f"source must be text of 1 to {SOURCE_LENGTH_MAX} characters.")
    escape(source)
    prefix = f"{ROOT}.{origin.kind}.{escape(origin.name)}."
    node = origin.name if origin.kind == NODE else None
    return Publisher(source, prefix, source_kind(source), node, origin.is_edge)
