"""Who may publish an event type, about what, and how early an agent drops it. Pure.

The registry holds one rule for every type. Folds, NATS permissions, importers, JSON Schemas and the agents' outbox all
read it there; no other place says who publishes what.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum, IntEnum, StrEnum
from typing import Final, NamedTuple

from gpuledger.events.subjects import NODE, ROOT, SERVICE, Origin, origin_of

EVENT_AHEAD_MAX: Final = timedelta(days=1)
"""How long after its recording an event may have happened: no mistake about a time zone puts a clock further ahead."""


class Rule(StrEnum):
    """The rules about edge events that folds enforce from a recorded position on (`rule.enforced`).

    What was recorded before that position stays as it was folded then. A rule is never removed, and one that changes
    gets the next version in `RULE_VERSIONS`.
    """

    PUBLISHERS = "publishers"
    """An edge source publishes only what the registry lets its kind publish, and an agent only about its own node.

    What services publish is reserved to them by their subjects, whatever rule is enforced.
    """

    EVENT_TIMES = "event-times"
    """No event happened more than `EVENT_AHEAD_MAX` after it was recorded."""

    EPOCH_ENDS = "epoch-ends"
    """Numbers that the ledger lacks up to the end of an epoch, as the agent says or leaves open, are missing.

    From version 2 on, an end before the last number that the ledger has leaves open what followed that.
    """

    DEVICE_REPORTS = "device-reports"
    """What an agent reports of a device counts once `inventory` has accepted it, and not if the device is elsewhere.

    Version 2 holds for what it says of a card's health and errors as well. From version 3 on, rejections beyond a limit
    of an hour are not recorded. From version 4 on, a card that a node's agent still reports stays there, whoever else
    reports it.
    """

    BOUNDS = "bounds"
    """What one event of an edge source holds, and what a node's agent makes folds keep, stays within bounds."""

    SHARED_SUBJECTS = "shared-subjects"
    """Names that come and go without end share a subject: `SHARED_SINCE` lists their aggregates.

    Every source may record an event under either form of its subject from here on, and before under the named one only.
    Version 2 has gangs.
    """


RULE_VERSIONS: Final[Mapping[str, int]] = {
    **dict.fromkeys(Rule, 1),
    Rule.EPOCH_ENDS: 2,
    Rule.DEVICE_REPORTS: 4,
    Rule.SHARED_SUBJECTS: 2,
}
"""The newest version of each rule that this build enforces."""


class SourceKind(StrEnum):
    """The kinds of source that publish events; each service of gpuledger is a kind of its own."""

    AGENTS = "agents"
    IMPORTERS = "importers"
    WATCHERS = "watchers"
    OPERATORS = "operators"
    SOURCES = "sources"
    INVENTORY = "inventory"
    BOOTSTRAP = "bootstrap"
    POOLS = "pools"
    SEALS = "seals"
    ADMISSION = "admission"
    HEALTH = "health"
    MAINTENANCE = "maintenance"
    NODEWRITER = "nodewriter"
    GATEWAYS = "gateways"
    REMEDIATION = "remediation"
    REMEDIATOR = "remediator"
    PREFLIGHT = "preflight"
    SHARING = "sharing"
    EXTENDER = "extender"
    ROLLOUT = "rollout"


class Authority(Enum):
    """The subjects that a publisher's events may concern."""

    OWN_NODE = "own-node"
    """An agent, about its own node and what is in it; a gateway, about the nodes whose monitors report to it.

    Every fold rejects such an event from another edge source where `Rule.PUBLISHERS` is enforced, and ignores others.
    """

    OWN_DEVICE = "own-device"
    """An agent, about a device on its node; importers, about any.

    Where the device is follows from other events: `inventory` decides it for each agent's report, and where
    `Rule.DEVICE_REPORTS` is enforced, folds hear a report through its `device.report-accepted` alone.
    """

    OWN_OBJECT = "own-object"
    """The watchers, about the cluster's objects. Every fold rejects such an event from anybody else."""

    SERVICE = "service"
    """One service, about what it decides. Every fold rejects such an event from anybody else."""

    OWN_SOURCE = "own-source"
    """Each of several services, under its own name. Every fold rejects such an event from anybody else."""

    EDGE = "edge"
    """The publishers, about hardware and workloads, under their own names.

    Every fold rejects such an event from another edge source where `Rule.PUBLISHERS` is enforced, and folds others.
    """


class DropClass(IntEnum):
    """How early an agent's outbox drops an event if there is no room for all; the lowest goes first.

    The spools of agents store these numbers.
    """

    REPEATED = 0
    """It is published again and again, and each event replaces the last."""

    ORDINARY = 1

    ONCE = 2
    """It is published once, and no later event replaces it."""

    FAILURE = 3
    """Hardware failed."""

    NEVER = 4


class PublishRule(NamedTuple):
    """The kinds of source that publish an event type, what it may concern, and how early an agent drops it.

    `judged_since` is the version of `Rule.DEVICE_REPORTS` from which on `inventory` has to accept an agent's event of
    the type; None: it never has to. Before that version its authority says who hears it.
    """

    publishers: tuple[SourceKind, ...]
    authority: Authority
    drop_class: DropClass = DropClass.ORDINARY
    judged_since: int | None = None

    @property
    def reserved_prefixes(self) -> tuple[str, ...]:
        """The prefixes of all subjects under which events of this type may be recorded."""
        if self.authority in (Authority.SERVICE, Authority.OWN_OBJECT, Authority.OWN_SOURCE):
            return tuple(f"{ROOT}.{SERVICE}.{publisher}." for publisher in self.publishers)
        return (f"{ROOT}.",)


def by_agents(
    drop_class: DropClass, authority: Authority = Authority.OWN_NODE, judged_since: int | None = None
) -> PublishRule:
    """Agents publish it."""
    return PublishRule((SourceKind.AGENTS,), authority, drop_class, judged_since)


def by_service(service: SourceKind) -> PublishRule:
    """Only this service of gpuledger publishes it."""
    return PublishRule((service,), Authority.SERVICE)


BY_WATCHERS = PublishRule((SourceKind.WATCHERS,), Authority.OWN_OBJECT)
BY_OWN_SERVICES = PublishRule(
    (
        SourceKind.SOURCES,
        SourceKind.INVENTORY,
        SourceKind.BOOTSTRAP,
        SourceKind.POOLS,
        SourceKind.SEALS,
        SourceKind.ADMISSION,
        SourceKind.HEALTH,
        SourceKind.MAINTENANCE,
        SourceKind.NODEWRITER,
        SourceKind.GATEWAYS,
        SourceKind.REMEDIATION,
        SourceKind.REMEDIATOR,
        SourceKind.PREFLIGHT,
        SourceKind.SHARING,
        SourceKind.EXTENDER,
        SourceKind.ROLLOUT,
        SourceKind.WATCHERS,
    ),
    Authority.OWN_SOURCE,
)
"""Every service that records what it decides or observes."""

BY_IMPORTERS = PublishRule((SourceKind.IMPORTERS,), Authority.EDGE)

_ORIGINS: Final[Mapping[str, SourceKind]] = {
    "import": SourceKind.IMPORTERS,
    **{kind.value: kind for kind in SourceKind if kind not in (SourceKind.AGENTS, SourceKind.IMPORTERS)},
}
"""The kinds of the services, by the name in the source."""


def source_kind(source: str) -> SourceKind | None:
    """The kind of a source; None if it publishes no event type.

    Raises:
        SubjectError: the source has none of the known shapes.
    """
    kind, name = origin_of(source)
    return SourceKind.AGENTS if kind == NODE else _ORIGINS.get(name)


def is_agent_of(source: str, node: str) -> bool:
    """Whether the source is the agent of this node."""
    return origin_of(source) == Origin(NODE, node)
