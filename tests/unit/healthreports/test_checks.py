"""What a preflight check may report, field by field."""

from typing import Any

import pytest

from gpuledger.healthreports.checks import CHECK_ENTITIES_MAX, CHECK_REPORT_BYTES_MAX, check_report_denial
from gpuledger.healthreports.healthevents_pb2 import HealthEvent

CHECK = "preflight-dcgm-diag"
CARD = {"entityType": "GPU_UUID", "entityValue": "GPU-17"}
REPORT: dict[str, Any] = {"agent": "gpuledger-preflight", "checkName": CHECK, "entitiesImpacted": [CARD]}
SKIPPED: dict[str, Any] = {"isHealthy": True, "processingStrategy": "STORE_ONLY", "entitiesImpacted": []}


def reason(**fields: Any) -> str | None:
    return check_report_denial(HealthEvent(**REPORT | fields), "events[0]", [CHECK])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"isHealthy": True},
        {"isFatal": True, "errorCode": ["DCGM_FR_X"], "message": "m"},
        {"entitiesImpacted": [CARD] * CHECK_ENTITIES_MAX},
        *(SKIPPED | {"errorCode": [code]} for code in ("SKIPPED", "NOT_REPORTED", "CONFIG_ERROR", "skipped")),
    ],
)
def test_its_own_result_is_taken(fields: dict[str, Any]) -> None:
    assert reason(**fields) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"agent": "gpu-health-monitor"}, "events[0].agent is 'gpu-health-monitor', but a preflight check reports as"),
        ({"agent": ""}, "events[0].agent is ''"),
        ({"checkName": "preflight-other"}, f"events[0].checkName is 'preflight-other', but only {CHECK} may report"),
        ({"quarantineOverrides": {"skip": True}}, "events[0] overrides the quarantine or the drain"),
        ({"drainOverrides": {"force": True}}, "events[0] overrides the quarantine or the drain"),
        ({"entitiesImpacted": []}, "events[0].entitiesImpacted is empty"),
        ({"entitiesImpacted": [], "isHealthy": True}, "events[0].entitiesImpacted is empty"),
        (SKIPPED | {"errorCode": []}, "events[0].entitiesImpacted is empty"),
        (SKIPPED | {"errorCode": ["79"]}, "events[0].entitiesImpacted is empty"),
        (SKIPPED | {"errorCode": ["SKIPPED", "79"]}, "events[0].entitiesImpacted is empty"),
        (SKIPPED | {"errorCode": ["SKIPPED"], "isHealthy": False}, "events[0].entitiesImpacted is empty"),
        (SKIPPED | {"errorCode": ["SKIPPED"], "processingStrategy": 1}, "events[0].entitiesImpacted is empty"),
        ({"entitiesImpacted": [CARD] * (CHECK_ENTITIES_MAX + 1)}, "events[0].entitiesImpacted has 65; a check names"),
        ({"message": "m" * CHECK_REPORT_BYTES_MAX}, "events[0] has "),
    ],
)
def test_what_is_not_its_own_is_refused(fields: dict[str, Any], words: str) -> None:
    assert (reason(**fields) or "").startswith(words)


def test_without_a_check_nothing_may_be_reported() -> None:
    assert check_report_denial(HealthEvent(**REPORT), "events[0]", []) is not None
