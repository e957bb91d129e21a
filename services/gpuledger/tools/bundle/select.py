"""Which events of a ledger belong to an incident. Pure.

Its reports; what followed from them, whichever service recorded it; what happened to the maintenance of its node while
it lasted; the rules that were in force; and what containers had its card. Effects stand behind their causes, so one
pass finds them.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.domain.health.entities import NODE_ENTITY, concerned
from gpuledger.domain.health.fold import scope_of
from gpuledger.domain.health.incidents import incident_id
from gpuledger.domain.health.own_reports import AGENT_CHECK, AGENT_MONITOR
from gpuledger.events.allocation import AllocationEnded, AllocationObserved
from gpuledger.events.device import DeviceDetached, DeviceFailed, DeviceHealthChanged
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.errors import EventError
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import (
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeDrainTimedOut,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeIsolationFailed,
    NodeIsolationSuperseded,
    NodeMaintenanceExpired,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.events.node import NodeDecommissioned, NodeGone
from gpuledger.events.quarantine import QuarantineBreakerOpened, QuarantineBreakerReset, QuarantineRulesApplied
from gpuledger.events.subjects import NODE, origin_of
from gpuledger.ledger.api import Message

OF_MAINTENANCE: Final = (
    NodeMaintenanceRequested, NodeMaintenanceReleased, NodeMaintenanceExpired, NodeIsolationChanged,
    NodeIsolationApplied, NodeIsolationFailed, NodeIsolationSuperseded, NodeDrainChanged, NodeDrainProgressed,
    NodeDrainTimedOut, NodeDrainFinished, NodeDrainSuperseded,
)  # fmt: skip
"""What happens to the maintenance of a node."""

_OF_NODE: Final = (NodeGone, NodeDecommissioned, *OF_MAINTENANCE)


class Bounds(NamedTuple):
    """The incident whose events are chosen; `ended_at` is None while it is open."""

    node: str
    scope: str
    entity: str
    device: str | None
    opened_at: datetime
    ended_at: datetime | None

    def has(self, time: datetime) -> bool:
        """Whether a time is within it."""
        return self.opened_at <= time and (self.ended_at is None or time <= self.ended_at)


class Candidate(NamedTuple):
    """A message of the log and its event."""

    message: Message
    event: Decoded


def candidates(messages: Iterable[Message]) -> Iterator[Candidate]:
    """The messages that are events, each event once."""
    ids = set[str]()
    for message in messages:
        try:
            message.data.decode()
            event = decode(message.data)
        except (EventError, UnicodeDecodeError):
            continue
        if event.id not in ids:
            ids.add(event.id)
            yield Candidate(message, event)


def chosen(found: Iterable[Candidate], bounds: Bounds) -> list[Candidate]:
    """Those that belong to the incident, of candidates in the order of the log."""
    kept: list[Candidate] = []
    ids = set[str]()
    rules: Candidate | None = None
    for one in found:
        event = one.event
        if isinstance(event.data, QuarantineRulesApplied) and event.time <= bounds.opened_at:
            rules = one
            continue
        if _is_report(event, bounds) or event.causation_id in ids or _is_meanwhile(event, bounds):
            ids.add(event.id)
            kept.append(one)
    return kept if rules is None else [rules, *kept]


def _is_report(event: Decoded, bounds: Bounds) -> bool:
    """Whether it is one of the reports that the incident consists of."""
    data = event.data
    if not bounds.has(event.time):
        return False
    if isinstance(data, NodeHealthReported):
        if scope_of(event.subject, data.monitor, data.check) != bounds.scope:
            return False
        entities = {one.entity for one in concerned(data)}
        return bounds.entity in entities or (data.healthy and NODE_ENTITY in entities)
    if isinstance(data, DeviceHealthChanged | DeviceFailed) and event.subject == bounds.entity:
        origin = origin_of(event.source)
        return origin.kind == NODE and scope_of(origin.name, AGENT_MONITOR, AGENT_CHECK) == bounds.scope
    return False


def _is_meanwhile(event: Decoded, bounds: Bounds) -> bool:
    data = event.data
    if isinstance(data, AllocationObserved | AllocationEnded):
        return True  # The caller has found those that matter.
    if isinstance(data, DeviceDetached):
        is_about = bounds.device == event.subject
    elif isinstance(data, _OF_NODE):
        is_about = event.subject == bounds.node
    else:
        is_about = isinstance(data, QuarantineRulesApplied | QuarantineBreakerOpened | QuarantineBreakerReset)
    return is_about and bounds.has(event.time)


def incident_name(events: Iterable[tuple[Decoded, Decoded]], bounds: Bounds) -> str:
    """The id of the incident as it follows from events some of whose values are replaced.

    Each event comes as it was recorded and as it is shown. Without the first report there is none: an empty text.
    """
    for recorded, shown in events:
        if recorded.time != bounds.opened_at or not _is_report(recorded, bounds):
            continue
        before, after = recorded.data, shown.data
        if not isinstance(before, NodeHealthReported) or not isinstance(after, NodeHealthReported):
            node = origin_of(shown.source).name
            return incident_id(scope_of(node, AGENT_MONITOR, AGENT_CHECK), shown.subject, bounds.opened_at)
        place = [one.entity for one in concerned(before)].index(bounds.entity)
        entity = concerned(after)[place].entity
        return incident_id(scope_of(shown.subject, after.monitor, after.check), entity, bounds.opened_at)
    return ""
