"""Decides which of the agents' reports on devices count: those on devices that are on no other node. Pure.

Other folds hear a report through this decision, so none of them has to know where the devices are.
"""

from collections.abc import Iterator
from typing import Any, Final

from gpuledger.domain.fact import Fact, time_of_ns
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
    judged: dict[str, Any] = {
        "node": origin_of(event.source).name,
        "report": event.id,
        "type": event.type,
        "epoch": event.epoch,
        "number": event.number,
    }
    verdict: DeviceReportAccepted | DeviceReportRejected
    if located_on is None:
        content = event.data.model_dump(mode="json", exclude_none=True)
        verdict = DeviceReportAccepted(**judged, data=content)
    else:
        rejected = 0
        if rule_version >= BOUNDED_SINCE:
            rejected = count_rejection(state, judged["node"], time_of_ns(fact.recorded_ns))
        if rejected > REJECTIONS_MAX:
            return
        is_last = rejected == REJECTIONS_MAX
        verdict = DeviceReportRejected(**judged, located_on=located_on, last_of_hour=is_last)
    yield Decision(event.id, event.correlation_id or event.id, event.subject, event.time, verdict)
