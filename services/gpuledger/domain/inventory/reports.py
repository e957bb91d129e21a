"""Where the devices are that agents report on: the one place that knows it, for every fold. Pure.

An agent names a card by its UUID or place, and a GPUDevice by its name. What is on no other node may be on its own: it
may speak of a card before the inventory hears of it. A hostile agent's reports are rejected all alike, so it is counted
how many of them were in the agent's latest hour of recording.
"""

from datetime import datetime

from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.inventory.claims import PLACE_SEPARATOR, keeps_cards, owner_of
from gpuledger.domain.inventory.facts import AGENT, InventoryFacts, ReportHour
from gpuledger.domain.sources.limits import HOUR, LIMITS
from gpuledger.events.catalogue import registry
from gpuledger.events.device import DeviceErrorsObserved, DeviceFailed, DeviceHealthChanged
from gpuledger.events.payload import NAME_LENGTH_MAX, Payload
from gpuledger.events.subjects import origin_of

REJECTIONS_MAX = LIMITS.rejected
"""How many rejections of an agent's reports are recorded within an hour."""

JUDGED: tuple[type[Payload], ...] = tuple(model for model in registry.models() if model.PUBLISH_RULE.judged_since)
"""The types of report that the inventory judges."""


ABOUT_CARDS = (DeviceFailed, DeviceHealthChanged, DeviceErrorsObserved)
"""Those that name a card; the others name a GPUDevice."""


def other_location(state: InventoryFacts, fact: Fact) -> str | None:
    """The other node that has the device of an agent's report; None if the agent may speak of it."""
    event, node = fact.event, origin_of(fact.event.source).name
    if isinstance(event.data, ABOUT_CARDS):
        if keeps_cards(state) and PLACE_SEPARATOR in event.subject:
            return _other_place(node, event.subject)
        own = state.report.get((node, AGENT, event.subject))
        if own is not None and own.reported_at >= event.time:
            return None  # The card was on this node when it happened, wherever it is now.
        owner = owner_of(state, event.subject)
    else:
        device = state.device.get(event.subject)
        owner = None if device is None else device.node
    return None if owner == node else owner


def _other_place(node: str, place: str) -> str | None:
    """The other node that the id of a place names; None if the place is in this one."""
    if place.startswith(f"{node}{PLACE_SEPARATOR}"):
        return None
    return (place.partition(PLACE_SEPARATOR)[0] or place)[:NAME_LENGTH_MAX]


def count_rejection(state: InventoryFacts, node: str, recorded_at: datetime) -> int:
    """Count a rejection of a node's report; returns how many there were in its hour."""
    row = state.report_hour.get(node)
    if row is None or recorded_at - row.hour >= HOUR:
        row = ReportHour(node, recorded_at.replace(minute=0, second=0, microsecond=0), 0)
    state.report_hour.put(row._replace(rejected=row.rejected + 1))
    return row.rejected + 1


def _heard(_state: InventoryFacts, _fact: Fact, _data: Payload) -> None:
    """A report changes nothing here; the decider answers it."""


REPORT_HANDLERS: Handlers = dict.fromkeys(JUDGED, _heard)
