"""What is counted of the results of preflight checks, and what is not."""

from typing import Any

import pytest
from prometheus_client import REGISTRY

from gpuledger.events.health import HealthEntity, NodeHealthReported
from gpuledger.healthreports.check_metrics import LABEL_CHARACTERS_MAX, OTHER, CheckResults, LabelValues
from gpuledger.healthreports.coalescing import ReportResult, digest


def report(check: str, outcome: str = "passed", **fields: Any) -> NodeHealthReported:
    metadata = {"outcome": outcome} | fields.pop("metadata", {})
    base: dict[str, Any] = {"monitor": "gpuledger-preflight", "check": f"preflight-{check}", "healthy": True}
    return NodeHealthReported(**base | {"fatal": False, "metadata": metadata} | fields)


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def counted(*reports: NodeHealthReported, result: ReportResult = ReportResult.RECORDED) -> None:
    CheckResults().count("n1", [(one, result) for one in reports])


def test_results_and_their_durations_are_counted() -> None:
    metadata = {"duration_s": "12.5", "gang_wait_s": "3", "gang": "g", "pod_namespace": "team-a"}
    counted(report("one", metadata=metadata), report("one", "failed", healthy=False, codes=("A", "B")))
    assert value("preflight_check_total", check="one", result="passed") == 1
    assert value("preflight_check_total", check="one", result="failed") == 1
    assert value("preflight_check_duration_seconds_sum", check="one") == 12.5
    assert value("preflight_gang_wait_seconds_sum", workload="team-a/g") == 3
    for code in ("A", "B"):
        assert value("preflight_check_failures_total", check="one", node="n1", error_code=code) == 1


def test_further_reports_of_a_check_count_their_failures_alone() -> None:
    counted(report("six", "failed", healthy=False, codes=("A",)), report("six", "", healthy=False, codes=("B",)))
    assert value("preflight_check_total", check="six", result="failed") == 1
    assert [value("preflight_check_failures_total", check="six", node="n1", error_code=one) for one in "AB"] == [1, 1]


def test_a_setting_that_is_invalid_is_counted() -> None:
    counted(report("two", "config-error", codes=("CONFIG_ERROR",), metadata={"error": "GANG_TIMEOUT"}))
    assert value("preflight_config_errors_total", error="GANG_TIMEOUT") == 1
    assert value("preflight_check_failures_total", check="two", node="n1", error_code="CONFIG_ERROR") == 0


def test_what_is_sent_again_is_not_counted_and_what_is_coalesced_is() -> None:
    counted(report("three"), result=ReportResult.REPEATED)
    assert value("preflight_check_total", check="three", result="passed") == 0
    counted(report("three"), result=ReportResult.COALESCED)
    assert value("preflight_check_total", check="three", result="passed") == 1


def test_the_same_result_of_two_pods_is_two_reports() -> None:
    entity = HealthEntity(type="GPU_UUID", value="GPU-17")
    first, second = (report("x", reporter=f"team-a/train-{number}", entities=(entity,)) for number in range(2))
    assert digest(first) != digest(second)


@pytest.mark.parametrize("seconds", ["", "x", "nan", "inf", "-1", "1e9"])
def test_invalid_metadata_is_ignored(seconds: str) -> None:
    check = f"four-{seconds}"
    counted(report(check, metadata={"duration_s": seconds}), report(check, "unheard of"))
    assert value("preflight_check_total", check=check, result="passed") == 1
    assert value("preflight_check_duration_seconds_count", check=check) == 0


def test_other_monitors_are_not_counted() -> None:
    counted(report("five", monitor="gpu-health-monitor"))
    assert value("preflight_check_total", check="five", result="passed") == 0


def test_values_of_labels_are_bounded() -> None:
    values = LabelValues(2)
    assert [values.of(one) for one in ("a", "b", "c", "a")] == ["a", "b", OTHER, "a"]
    assert LabelValues().of("x" * 100 + "\n") == "x" * LABEL_CHARACTERS_MAX
    assert LabelValues().of("a\nb") == "a?b"
