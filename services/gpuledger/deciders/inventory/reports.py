"""Decides which of the agents' reports on devices count: those on devices that are on no other node. Pure.

Other folds hear a report through this decision, so none of them has to know where the devices are.
"""

from collections.abc import Iterator
from typing import Any

from gpuledger.domain.fact import Fact
from gpuledger.domain.inventory.facts import InventoryFacts
from gpuledger.domain.inventory.reports import other_location
from gpuledger.events.device import DeviceReportAccepted, DeviceReportRejected
from gpuledger.events.subjects import origin_of
from gpuledger.projection.definition import Decision


def on_report(state: InventoryFacts, fact: Fact) -> Iterator[Decision]:
    """Accept or reject an agent's report on a device, at the time of the report."""
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
        verdict = DeviceReportRejected(**judged, located_on=located_on)
    yield Decision(event.id, event.correlation_id or event.id, event.subject, event.time, verdict)
