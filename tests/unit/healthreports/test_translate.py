"""What a monitor sends as facts: every field, its bounds, who it is about, and which cards."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.domain.mig.geometry import Instance
from gpuledger.events.health import CODES_MAX, ENTITIES_MAX, METADATA_MAX, Behaviour, HealthEntity
from gpuledger.events.payload import CUT, NAME_LENGTH_MAX, TEXT_LENGTH_MAX
from gpuledger.events.publishing import EVENT_AHEAD_MAX
from gpuledger.healthreports.errors import InvalidReportError, ReportDeniedError
from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from gpuledger.healthreports.impacted import impacted
from gpuledger.healthreports.translate import EVENTS_MAX, HealthReport, ReportContext, translate

NOW = datetime(2026, 3, 6, 9, 35, tzinfo=UTC)
NODE = "w1"
CARDS = (
    CardFacts("0000:17:00.0", "10de", "2330", uuid="GPU-a", instances=(Instance("MIG-1", "1g.10gb", 0, 1),)),
    CardFacts("0000:2a:00.0", "10de", "2330"),
    CardFacts("0002:00:00.0", "10de", "2330", uuid="GPU-c"),
    CardFacts("10000:e1:00.0", "10de", "2330", uuid="GPU-d"),
)
EVENT: dict[str, Any] = {"agent": "monitor", "checkName": "GpuXidError"}


def reports(*events: dict[str, Any], node: str = NODE, reporter: str | None = None) -> list[HealthReport]:
    request = ParseDict({"version": 1, "events": [EVENT | event for event in events]}, HealthEvents())
    return translate(request, ReportContext(node, CARDS, reporter), NOW)


def report(**fields: Any) -> HealthReport:
    (found,) = reports(fields)
    return found


def test_every_field_is_taken() -> None:
    found = reports(
        {
            "componentClass": "GPU",
            "isFatal": True,
            "message": "XID 79",
            "recommendedAction": 15,
            "errorCode": ["79", "DCGM_FR_GPU_FALLEN_OFF_BUS"],
            "entitiesImpacted": [{"entityType": "PCI", "entityValue": "0002:00:00"}],
            "metadata": {"zone": "0"},
            "generatedTimestamp": "2026-03-06T09:34:56.5Z",
            "nodeName": NODE,
            "quarantineOverrides": {"force": True},
            "drainOverrides": {"skip": True},
            "processingStrategy": 1,
            "id": "69aa9fc0",
        },
        {"isHealthy": True, "processingStrategy": 2},
        reporter="monitoring/gpu-health-monitor-x",
    )
    (first, at), (second, later) = found
    assert first.model_dump(exclude_defaults=True) == {
        "monitor": "monitor",
        "reporter": "monitoring/gpu-health-monitor-x",
        "check": "GpuXidError",
        "component": "GPU",
        "healthy": False,
        "fatal": True,
        "message": "XID 79",
        "action": "RESTART_VM",
        "codes": ("79", "DCGM_FR_GPU_FALLEN_OFF_BUS"),
        "entities": (HealthEntity(type="PCI", value="0002:00:00").model_dump(),),
        "devices": ("GPU-c",),
        "metadata": {"zone": "0"},
        "quarantine": Behaviour(force=True).model_dump(exclude_defaults=True),
        "drain": Behaviour(skip=True).model_dump(exclude_defaults=True),
        "report": "69aa9fc0",
        "first_at": at,
    }
    assert at == datetime(2026, 3, 6, 9, 34, 56, 500_000, tzinfo=UTC)
    assert (second.healthy, second.strategy, second.first_at, later) == (True, "store-only", NOW, None)


@pytest.mark.parametrize(
    ("number", "action"), [(0, "NONE"), (2, "COMPONENT_RESET"), (25, "REPLACE_VM"), (99, "UNKNOWN"), (31, "31")]
)
def test_an_action_is_its_name_or_its_number(number: int, action: str) -> None:
    assert report(recommendedAction=number).data.action == action


def test_a_custom_action_is_named() -> None:
    found = report(recommendedAction=27, customRecommendedAction="REPLACE_FAN").data
    assert (found.action, found.custom_action) == ("CUSTOM", "REPLACE_FAN")


@pytest.mark.parametrize(
    ("number", "strategy"),
    [(0, "execute-remediation"), (2, "store-only"), (3, "store-and-analyse"), (9, "store-only")],
)
def test_a_strategy_that_nobody_here_has_heard_of_changes_nothing(number: int, strategy: str) -> None:
    assert report(processingStrategy=number).data.strategy == strategy


@pytest.mark.parametrize("time", [{"seconds": 0}, {"seconds": -62_135_596_800}], ids=["never set", "Go's zero time"])
def test_a_time_that_is_not_set_is_now(time: dict[str, int]) -> None:
    request = HealthEvents()
    event = request.events.add(agent="monitor", checkName="c")
    event.generatedTimestamp.seconds = time["seconds"]
    (found,) = translate(request, ReportContext(NODE, (), None), NOW)
    assert (found.at, found.data.first_at) == (None, NOW)


def test_a_time_ahead_of_the_agents_clock_counts_as_now() -> None:
    ahead = NOW + EVENT_AHEAD_MAX
    found = report(generatedTimestamp=ahead.isoformat())
    assert (found.at, found.data.first_at) == (ahead, NOW)


def test_a_message_is_cut_and_keeps_no_nul() -> None:
    assert report(message="x" * (TEXT_LENGTH_MAX + 1)).data.message.endswith(f"x{CUT}")
    assert report(message="a\0b").data.message == "a\\0b"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"agent": ""}, "events[1].agent: String should have at least 1 character."),
        ({"checkName": "x" * (NAME_LENGTH_MAX + 1)}, "events[1].checkName: String should have at most 253 characters."),
        ({"componentClass": "a\0"}, "events[1].componentClass: it holds a NUL character"),
        ({"errorCode": ["1", ""]}, "events[1].errorCode[1]: "),
        ({"errorCode": ["1"] * (CODES_MAX + 1)}, "events[1].errorCode: Tuple should have at most 64 items"),
        ({"entitiesImpacted": [{"entityType": "GPU"}]}, "events[1].entitiesImpacted[0].entityValue: "),
        (
            {"entitiesImpacted": [{"entityType": "GPU", "entityValue": "0"}] * (ENTITIES_MAX + 1)},
            "events[1].entitiesImpacted: Tuple should have at most 256 items",
        ),
        ({"metadata": {str(n): "" for n in range(METADATA_MAX + 1)}}, "events[1].metadata: Dictionary should have at"),
        ({"metadata": {"key": "x" * 1025}}, "events[1].metadata.key: String should have at most 1024 characters."),
        ({"recommendedAction": 27}, "events[1].customRecommendedAction: it is empty"),
        ({"generatedTimestamp": (NOW + timedelta(days=1, seconds=1)).isoformat()}, "events[1].generatedTimestamp: "),
        ({"id": "x" * 1025}, "events[1].id: String should have at most 1024 characters."),
        (
            {"metadata": {str(n): "\N{GRINNING FACE}" * 1024 for n in range(METADATA_MAX)}, "message": ""},
            "events[1]: it has 263",
        ),
    ],
)
def test_what_is_wrong_is_named_by_its_field(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidReportError) as error:
        reports({}, fields)
    assert str(error.value).startswith(words)


def test_a_time_that_is_none() -> None:
    request = HealthEvents()
    request.events.add(agent="monitor", checkName="c").generatedTimestamp.seconds = 2**62
    with pytest.raises(InvalidReportError, match=r"events\[0\].generatedTimestamp: \d+ s, 0 ns is no time"):
        translate(request, ReportContext(NODE, (), None), NOW)


def test_a_request_holds_so_many_events_at_most() -> None:
    with pytest.raises(InvalidReportError, match="send 1000 at most"):
        reports(*[{}] * (EVENTS_MAX + 1))


def test_only_the_own_node_is_reported_on() -> None:
    with pytest.raises(ReportDeniedError, match=r"events\[0\].nodeName is 'w2', .* 'w1'"):
        reports({"nodeName": "w2"})


@pytest.mark.parametrize(
    ("entities", "uuids"),
    [
        ([("GPU_UUID", "GPU-a")], ("GPU-a",)),
        ([("GPU_UUID", "gpu-A")], ("GPU-a",)),
        ([("GPU_UUID", "MIG-1")], ("GPU-a",)),
        ([("GPU", "GPU-c")], ("GPU-c",)),
        ([("PCI", "0002:00:00.0")], ("GPU-c",)),
        ([("PCI", "0002:00:00")], ("GPU-c",)),
        ([("PCI", "00000017:00:00")], ()),
        ([("PCI", "00000000:17:00.0")], ("GPU-a",)),
        ([("PCI", "00010000:E1:00")], ("GPU-d",)),
        ([("PCI", "0000:2a:00.0")], ()),
        ([("PCI", "nonsense"), ("PCI", ".")], ()),
        ([("GPU", "0")], ("GPU-a",)),
        ([("GPU", "1")], ("GPU-c",)),
        ([("GPU", "3")], ()),
        ([("GPU", "-1"), ("GPU", "9" * 5000), ("GPU", "²")], ()),
        ([("GPU", "0"), ("PCI", "0002:00:00"), ("GPU_UUID", "GPU-c")], ("GPU-c",)),
        ([("GPU", "0"), ("GPU_UUID", "GPU-unknown")], ("GPU-a",)),
        ([("NVSWITCH", "0")], ()),
        ([], ()),
    ],
)
def test_cards_are_found_however_they_are_named(entities: list[tuple[str, str]], uuids: tuple[str, ...]) -> None:
    assert impacted(entities, CARDS) == uuids
