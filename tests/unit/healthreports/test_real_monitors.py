"""What NVSentinel's own monitors sent, as facts, and what the rules make of it."""

from datetime import UTC, datetime

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.events.maintenance import NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from gpuledger.healthreports.translate import HealthReport, ReportContext, translate
from support.nvsentinel import real_requests
from support.quarantine import QuarantineLog, rules

NOW = datetime(2026, 1, 1, 11, tzinfo=UTC)
UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{place}" for place in range(2))
CARDS = tuple(CardFacts(f"0000:{0x17 + place:x}:00.0", "10de", "2330", uuid=uuid) for place, uuid in enumerate(UUIDS))


def translated(*monitors: str) -> list[list[HealthReport]]:
    """The reports of each request of these monitors."""
    context = ReportContext("n1", CARDS, None)
    return [
        translate(HealthEvents.FromString(one.content), context, NOW)
        for one in real_requests()
        if one.monitor in monitors
    ]


def test_every_request_is_taken_and_names_its_cards() -> None:
    found = translated("gpu-health-monitor", "preflight-dcgm-diag")
    assert [len(request) for request in found] == [1, 6, 1, 1, 1, 1, 1, 1, 1, 1]
    first = [(one.data.check, one.data.devices, one.data.strategy) for one in found[1]]
    assert first[:2] == [("GpuMemWatch", (uuid,), "execute-remediation") for uuid in UUIDS]
    assert first[4:] == [("GpuPowerWatch", (uuid,), "store-only") for uuid in UUIDS]
    (error,) = found[2]
    assert (error.data.codes, error.data.action, error.data.metadata) == (
        ("DCGM_FR_VOLATILE_DBE_DETECTED",), "COMPONENT_RESET", {"chassis_serial": "1661124000123"},
    )  # fmt: skip
    assert [one.data.fatal for request in found for one in request if not one.data.healthy] == [True] * 5
    times = [one.at for request in found for one in request if one.at is not None]
    assert len(times) == 15
    assert (min(times), max(times)) == (
        datetime(2026, 1, 1, 10, 0, 30, tzinfo=UTC),
        datetime(2026, 1, 1, 10, 6, tzinfo=UTC),
    )


def test_a_card_is_set_aside_while_it_has_errors_and_the_node_while_dcgm_is_away() -> None:
    log, happened = QuarantineLog("n1", "n2", document=rules()), []
    for second, request in enumerate(translated("gpu-health-monitor"), 1):
        for one in request:
            decided = log.record("n1", one.data.model_copy(update={"first_at": None}), second)
            happened += [
                (second, type(event.data).__name__)
                for event in decided
                if isinstance(event.data, NodeMaintenanceRequested | NodeMaintenanceReleased)
            ]
    requested, released = NodeMaintenanceRequested.__name__, NodeMaintenanceReleased.__name__
    assert happened == [(3, requested), (5, released), (6, requested), (7, released), (8, requested)]
