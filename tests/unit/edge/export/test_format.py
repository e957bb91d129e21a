"""What is sent of an event: our CloudEvent with its place, and NVSentinel's, as a real exporter's was recorded."""

import re
from typing import Any

import orjson
import pytest

from gpuledger.edge.export.format import Place, document_of, encoded
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import encode, parse
from gpuledger.events.errors import MalformedEventError
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.nvsentinel import ACTION_NUMBERS, STRATEGIES, WIRE_NAMES, action_name, action_number
from gpuledger.events.position import Position
from gpuledger.healthreports.healthevents_pb2 import ProcessingStrategy, RecommendedAction
from gpuledger.runtime.export_settings import ExportSettings
from support.events import event
from support.exporting import reports
from support.paths import ROOT

RECORDED = ROOT.parent / "shared" / "recordings" / "nvsentinel" / "cloudevent-event-exporter.json"
PLACE = Place("the-ledger", Position(2, 57), 1_767_225_601_500_000_000)
ATTRIBUTE = re.compile(r"[a-z0-9]{1,20}")
OURS = ExportSettings("https://events.example/")
NVSENTINEL = ExportSettings(
    "https://events.example/",
    health_shape="nvsentinel",
    metadata={"cluster": "production-us-west", "environment": "production", "region": "us-west-2"},
)


def document(settings: ExportSettings = OURS, **fields: Any) -> dict[str, Any]:
    found = parse(encode(reports([1], **fields)[0]))
    sent: dict[str, Any] = orjson.loads(encoded(document_of(found, PLACE, settings)))
    return sent


def test_our_event_has_its_place_and_keeps_its_id() -> None:
    sent = document()
    assert sent["id"] == reports([1])[0].id
    assert (sent["ledgerid"], sent["ledgerposition"]) == ("the-ledger", "2/57")
    assert (sent["time"], sent["recordedtime"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.500000Z")
    assert sent["data"]["check"] == "check-1"
    assert sent["dataschema"] == "urn:gpuledger:schema:node.health-reported.v1"


def test_an_event_that_is_nested_too_deep_is_rejected_like_one_that_cannot_be_read() -> None:
    raw = orjson.loads(encode(reports([1])[0]))
    found = parse(orjson.dumps(raw).replace(b'"check":', b'"deep":' + b"[" * 300 + b"]" * 300 + b',"check":'))
    with pytest.raises(MalformedEventError, match="cannot be written as JSON"):
        encoded(document_of(found, PLACE, OURS))


@pytest.mark.parametrize("settings", [OURS, NVSENTINEL])
def test_names_of_attributes_are_those_that_cloudevents_allows(settings: ExportSettings) -> None:
    assert [name for name in document(settings) if not ATTRIBUTE.fullmatch(name)] == []


def test_an_event_that_was_recorded_elsewhere_before_keeps_that_time() -> None:
    earlier = reports([1])[0].time.replace(year=2025)
    found = parse(encode(reports([1])[0]._replace(recorded_at=earlier)))
    sent = orjson.loads(encoded(document_of(found, PLACE, NVSENTINEL)))
    assert sent["recordedtime"] == "2025-01-01T00:00:00Z"


def test_a_report_has_every_field_of_nvsentinel() -> None:
    sent = document(
        NVSENTINEL,
        component="GPU",
        message="XID 79",
        action="CUSTOM",
        custom_action="REPLACE_FAN",
        codes=("79",),
        entities=({"type": "PCI", "value": "0000:17:00.0"},),
        metadata={"zone": "a"},
        first_at="2025-12-31T23:59:00Z",
        quarantine={"force": True},
        drain={"skip": True},
        strategy="store-only",
        report="69aa9fc0",
    )
    assert (sent["type"], sent["source"]) == (
        "com.nvidia.nvsentinel.health.v1",
        "nvsentinel://production-us-west/healthevents",
    )
    assert sent["data"]["metadata"] == NVSENTINEL.metadata
    assert sent["data"]["healthEvent"] == {
        "version": "v1",
        "agent": "m",
        "componentClass": "GPU",
        "checkName": "check-1",
        "nodeName": "n1",
        "message": "XID 79",
        "isFatal": True,
        "isHealthy": False,
        "recommendedAction": 27,
        "customRecommendedAction": "REPLACE_FAN",
        "errorCode": ["79"],
        "entitiesImpacted": [{"entityType": "PCI", "entityValue": "0000:17:00.0"}],
        "metadata": {"zone": "a"},
        "generatedTimestamp": "2025-12-31T23:59:00Z",
        "quarantineOverrides": {"force": True, "skip": False},
        "drainOverrides": {"force": False, "skip": True},
        "processingStrategy": 2,
        "id": "69aa9fc0",
    }


def test_another_type_keeps_our_shape() -> None:
    found = parse(encode(event(DeviceFailed(kind="DBE"), "d1")))
    sent = document_of(found, PLACE, NVSENTINEL)
    assert sent["type"] == DeviceFailed.TYPE


def test_the_name_of_a_cluster_is_quoted_in_the_source() -> None:
    settings = ExportSettings("https://events.example/", health_shape="nvsentinel", metadata={"cluster": "a b/c"})
    assert document(settings)["source"] == "nvsentinel://a%20b%2Fc/healthevents"
    assert document(ExportSettings("https://e.example/", health_shape="nvsentinel"))["source"] == (
        "nvsentinel://gpuledger/healthevents"
    )


@pytest.mark.shared
@pytest.mark.skipif(not RECORDED.is_file(), reason=f"no recordings in {RECORDED.parent}")
def test_the_event_of_a_real_exporter_comes_out_as_it_was() -> None:
    recorded = orjson.loads(RECORDED.read_bytes())
    health = recorded["data"]["healthEvent"]
    sent = document(
        NVSENTINEL,
        monitor=health["agent"],
        check=health["checkName"],
        component=health["componentClass"],
        message=health["message"],
        fatal=health["isFatal"],
        healthy=health["isHealthy"],
        action=action_name(health["recommendedAction"]),
        codes=tuple(health["errorCode"]),
        entities=tuple({"type": one["entityType"], "value": one["entityValue"]} for one in health["entitiesImpacted"]),
        first_at=health["generatedTimestamp"],
    )
    assert sent["data"] == recorded["data"] | {"healthEvent": health | {"nodeName": "n1"}}
    assert {name: sent[name] for name in ("specversion", "type", "source")} == {
        name: recorded[name] for name in ("specversion", "type", "source")
    }
    assert recorded.keys() <= sent.keys()


def test_names_and_numbers_are_those_of_the_gateway() -> None:
    assert dict(RecommendedAction.items()) == ACTION_NUMBERS
    assert set(STRATEGIES) == set(ProcessingStrategy.values())
    assert WIRE_NAMES.keys() >= NodeHealthReported.model_fields.keys() - {"reporter", "devices", "count"}


@pytest.mark.parametrize(("name", "number"), [("NONE", 0), ("28", 28), ("-1", -1), ("MELT", 99), ("9" * 40, 99)])
def test_the_number_of_an_action(name: str, number: int) -> None:
    assert action_number(name) == number
