"""What is sent of an event: our CloudEvent with its place in the log, or NVSentinel's for a report of health. Pure.

The id of an event never changes, so that a receiver recognizes what was sent twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import quote

import orjson

from gpuledger.domain.fact import counted_as_recorded
from gpuledger.events.envelope import CONTENT_TYPE, SPEC_VERSION, Undecoded, to_document, with_payload
from gpuledger.events.errors import MalformedEventError
from gpuledger.events.health import Behaviour, NodeHealthReported
from gpuledger.events.nvsentinel import (
    CLOUD_EVENT_TYPE,
    EVENT_VERSION,
    NODE_NAME,
    STRATEGY_NUMBERS,
    WIRE_NAMES,
    action_number,
)
from gpuledger.events.position import Position
from gpuledger.ledger.identity import Anchor
from gpuledger.runtime.export_settings import ExportSettings

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"

UNNAMED_CLUSTER: Final = "gpuledger"
"""What NVSentinel's shape names as the source where the metadata name no cluster."""

_HEALTH: Final = "io.gpuledger.node.health-reported."

Document = dict[str, object]


class Place(NamedTuple):
    """Where an event stands in which ledger, and the log's time-stamp, in nanoseconds since 1970."""

    ledger_id: str
    at: Position
    recorded_ns: int


def document_of(event: Undecoded, place: Place, settings: ExportSettings) -> Document:
    """The CloudEvent to send.

    Raises:
        EventError: a report of health does not decode.
    """
    recorded_at = counted_as_recorded(event, place.recorded_ns)
    extensions: Document = {
        "ledgerid": place.ledger_id,
        "ledgerposition": str(place.at),
        "recordedtime": recorded_at,
    }
    if settings.health_shape == "nvsentinel" and event.type.startswith(_HEALTH):
        return _nvsentinel(event, settings.metadata) | extensions
    return to_document(event, event.data) | extensions


def encoded(document: Document) -> bytes:
    """The document as JSON, with times as RFC 3339 has them.

    Raises:
        MalformedEventError: what its source put into it is nested deeper than JSON is written here.
    """
    try:
        return orjson.dumps(document, option=orjson.OPT_UTC_Z)
    except orjson.JSONEncodeError as error:
        raise MalformedEventError(f"The event cannot be written as JSON: {error}.") from error


class Parcel(NamedTuple):
    """An event to send: its document, where it stands, and what is recorded of it if the endpoint refuses it."""

    document: bytes
    at: Position
    anchor: Anchor
    event_id: str
    type: str
    subject: str


def grouped(parcels: Sequence[Parcel], events_max: int, bytes_max: int) -> Iterator[Sequence[Parcel]]:
    """The parcels in their order, as many to a request as both bounds allow, and at least one."""
    begin, size = 0, 0
    for index, parcel in enumerate(parcels):
        size += len(parcel.document) + 1
        if index > begin and (index - begin >= events_max or size > bytes_max):
            yield parcels[begin:index]
            begin, size = index, len(parcel.document) + 1
    if begin < len(parcels):
        yield parcels[begin:]


def body_of(parcels: Sequence[Parcel], *, is_batch: bool) -> bytes:
    """The body of a request: the one document in structured mode, or a list of them in batch mode."""
    if is_batch:
        return b"[" + b",".join(parcel.document for parcel in parcels) + b"]"
    (parcel,) = parcels
    return parcel.document


def _nvsentinel(event: Undecoded, metadata: Mapping[str, str]) -> Document:
    report = with_payload(event).data
    assert isinstance(report, NodeHealthReported), "it has this type"
    return {
        "specversion": SPEC_VERSION,
        "type": CLOUD_EVENT_TYPE,
        "source": f"nvsentinel://{quote(metadata.get('cluster') or UNNAMED_CLUSTER, safe='')}/healthevents",
        "id": event.id,
        "time": event.time,
        "datacontenttype": CONTENT_TYPE,
        "data": {"metadata": dict(metadata), "healthEvent": health_event(report, event.subject, event.time)},
    }


def health_event(report: NodeHealthReported, node: str, time: datetime) -> Document:
    """The report as NVSentinel has it, with the names of the wire in JSON; what is empty or a default is left out.

    `time` stands for the time of a report that has none of its own.
    """
    values: Document = {
        "monitor": report.monitor,
        "component": report.component,
        "check": report.check,
        "message": report.message,
        "fatal": report.fatal,
        "healthy": report.healthy,
        "action": action_number(report.action),
        "custom_action": report.custom_action,
        "codes": list(report.codes) or None,
        "entities": [{WIRE_NAMES["type"]: entity.type, WIRE_NAMES["value"]: entity.value} for entity in report.entities]
        or None,
        "metadata": dict(report.metadata) or None,
        "first_at": report.first_at or time,
        "quarantine": _overrides(report.quarantine),
        "drain": _overrides(report.drain),
        "strategy": None if report.strategy == "execute-remediation" else STRATEGY_NUMBERS[report.strategy],
        "report": report.report,
    }
    named = {WIRE_NAMES[name]: value for name, value in values.items() if value is not None}
    return {"version": EVENT_VERSION, NODE_NAME: node} | named


def _overrides(behaviour: Behaviour) -> Document | None:
    return None if behaviour == Behaviour() else {"force": behaviour.force, "skip": behaviour.skip}
