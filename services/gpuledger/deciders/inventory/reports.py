"""Decides which of the agents' reports on devices count: those on devices that are on no other node. Pure.

Other folds hear a report through this decision, so none of them has to know where the devices are.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from gpuledger.domain.fact import Fact, time_of_ns
from gpuledger.domain.inventory.claims import other_keeper
from gpuledger.domain.inventory.facts import InventoryFacts
from gpuledger.domain.inventory.reports import REJECTIONS_MAX, count_rejection, other_location
from gpuledger.events.device import DeviceReportAccepted, DeviceReportRejected
from gpuledger.events.subjects import origin_of
from gpuledger.projection.definition import Decision

BOUNDED_SINCE: Final = 3
"""The version of `Rule.DEVICE_REPORTS` from which on rejections beyond the limit of an hour are not recorded."""


def on_report(state: InventoryFacts, fact: Fact, rule_version: int) -> Iterator[Decision]:
    """Accept or reject an agent's report on a device, at the time of the report.

    The last rejection that is recorded within an hour says so. A report without a verdict counts for nobody either.
    """
    event, located_on = fact.event, other_location(state, fact)
    if located_on is not None:
        yield from _reject(state, fact, event.subject, located_on, is_bounded=rule_version >= BOUNDED_SINCE)
        return
    content = event.data.model_dump(mode="json", exclude_none=True)
    yield _verdict(fact, event.subject, DeviceReportAccepted(**_judged(fact), data=content))


def on_claims(state: InventoryFacts, fact: Fact, cards: Iterable[str]) -> Iterator[Decision]:
    """Reject what an agent's survey says of cards that other nodes keep; a claim that is not rejected is none."""
    for card in cards:
        located_on = other_keeper(state, fact.event.subject, card)
        if located_on is not None:
            rejections = list(_reject(state, fact, card, located_on, is_bounded=True))
            if not rejections:
                state.drop_claim(fact.event.subject, card)
            yield from rejections


def _reject(state: InventoryFacts, fact: Fact, device: str, located_on: str, *, is_bounded: bool) -> Iterator[Decision]:
    rejected = 0
    if is_bounded:
        rejected = count_rejection(state, origin_of(fact.event.source).name, time_of_ns(fact.recorded_ns))
    if rejected <= REJECTIONS_MAX:
        is_last = rejected == REJECTIONS_MAX
        data = DeviceReportRejected(**_judged(fact), located_on=located_on, last_of_hour=is_last)
        yield _verdict(fact, device, data)


def _judged(fact: Fact) -> dict[str, Any]:
    """What a verdict names of the report."""
    event = fact.event
    return {
        "node": origin_of(event.source).name,
        "report": event.id,
        "type": event.type,
        "epoch": event.epoch,
        "number": event.number,
    }


def _verdict(fact: Fact, device: str, data: DeviceReportAccepted | DeviceReportRejected) -> Decision:
    event = fact.event
    return Decision(event.id, event.correlation_id or event.id, device, event.time, data)
