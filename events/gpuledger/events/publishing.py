"""Who may publish an event type, about what, and how early an agent gives it up. Pure.

The registry holds one rule for every type. Folds, NATS permissions, importers, JSON Schemas and the agents' outbox read
it there, and nowhere else is it written who publishes what.
"""

from enum import Enum, IntEnum, StrEnum
from typing import NamedTuple

from gpuledger.events.subjects import NODE, ROOT, SERVICE, Origin, origin_of


class SourceKind(StrEnum):
    """The kinds of source that publish events; a service of ours is a kind of its own."""

    AGENTS = "agents"
    IMPORTERS = "importers"
    WATCHERS = "watchers"
    OPERATORS = "operators"
    SOURCES = "sources"
    INVENTORY = "inventory"
    BOOTSTRAP = "bootstrap"
    POOLS = "pools"


class Authority(Enum):
    """What a publisher may speak about."""

    OWN_NODE = "own-node"
    """An agent, about its own node and what is in it. Folds ignore such an event from anybody else."""

    OWN_OBJECT = "own-object"
    """The watchers, about the cluster's objects. Every fold rejects such an event from anybody else."""

    SERVICE = "service"
    """One service, about what it decides. Every fold rejects such an event from anybody else."""

    EDGE = "edge"
    """Any source, about hardware and workloads, under its own name."""


class DropClass(IntEnum):
    """How early an agent's outbox gives up an event where not all can wait; the lowest goes first.

    The numbers stand in the spools of agents.
    """

    REPEATED = 0
    """It is published again and again, and each event replaces the last."""

    ORDINARY = 1

    ONCE = 2
    """It is published once, and nothing else shows what follows from it."""

    FAILURE = 3
    """Hardware failed."""

    NEVER = 4


class PublishRule(NamedTuple):
    """The kinds of source that publish an event type, what they may speak about, and how early an agent drops it."""

    publishers: tuple[SourceKind, ...]
    authority: Authority
    drop_class: DropClass = DropClass.ORDINARY

    @property
    def reserved_prefix(self) -> str:
        """The beginning of the subjects under which alone events of this type may be recorded."""
        if self.authority in (Authority.SERVICE, Authority.OWN_OBJECT):
            return f"{ROOT}.{SERVICE}.{self.publishers[0]}."
        return f"{ROOT}."


def by_agents(drop_class: DropClass, authority: Authority = Authority.OWN_NODE) -> PublishRule:
    """Agents publish it."""
    return PublishRule((SourceKind.AGENTS,), authority, drop_class)


def by_service(service: SourceKind) -> PublishRule:
    """One of our services alone publishes it."""
    return PublishRule((service,), Authority.SERVICE)


BY_WATCHERS = PublishRule((SourceKind.WATCHERS,), Authority.OWN_OBJECT)
BY_IMPORTERS = PublishRule((SourceKind.IMPORTERS,), Authority.EDGE)
BY_IMPORTERS_AND_AGENTS = PublishRule((SourceKind.IMPORTERS, SourceKind.AGENTS), Authority.EDGE)
"""Real agents do not publish workloads, but simulated ones do."""

_ORIGINS = {"import": SourceKind.IMPORTERS}


def source_kind(source: str) -> SourceKind | None:
    """The kind of a source; None for one that publishes no type of ours.

    Raises:
        SubjectError: the source has none of the known shapes.
    """
    kind, name = origin_of(source)
    if kind == NODE:
        return SourceKind.AGENTS
    if name in _ORIGINS:
        return _ORIGINS[name]
    return SourceKind(name) if name in set(SourceKind) - {SourceKind.AGENTS, SourceKind.IMPORTERS} else None


def is_agent_of(source: str, node: str) -> bool:
    """Whether the source is the agent of this node."""
    return origin_of(source) == Origin(NODE, node)


def is_about_own_node(source: str, aggregate: str, subject: str) -> bool:
    """Whether the source is an agent, and its own node is the one that the event's subject names.

    The subject of an event about a device names no node: the fold knows where the device is, and has to ask
    `is_agent_of`.
    """
    kind, name = origin_of(source)
    if kind != NODE:
        return False
    if aggregate == "node":
        return subject == name
    return aggregate != "allocation" or subject.startswith(f"{name}/")
