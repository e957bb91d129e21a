"""What a check's environment may hold, and what of it is refused by the name of its variable."""

from pathlib import Path

import pytest

from gpuledger.api.preflight import NotRun, Variable
from gpuledger.domain.preflight.durations import seconds_of
from gpuledger.preflight.errors import ConfigurationError
from gpuledger.preflight.settings import read_check_settings

SOCKET: dict[str, str] = {Variable.SOCKET: "unix:///var/run/health.sock"}


def test_defaults_are_those_of_the_design() -> None:
    settings = read_check_settings(SOCKET)
    assert settings.report.socket == Path("/var/run/health.sock")
    assert (settings.check_timeout_s, settings.gang.timeout_s, settings.diag.level) == (300.0, 600.0, 1)
    assert (settings.thresholds.loopback_gbps, settings.thresholds.allreduce_gbps) == (10.0, 5.0)
    assert (settings.strategy, settings.not_run) == ("execute-remediation", NotRun.BLOCK)
    assert settings.topology.fallback


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("300s", 300.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("250ms", 0.25), ("0", 0.0), ("10", None), ("s", None),
     ("-5s", None), ("5 s", None), ("1e9s", None), ("", None)],
)  # fmt: skip
def test_a_duration_is_one_of_go(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (Variable.SOCKET, "unix://relative"),
        (Variable.STRATEGY, "IGNORE"),
        (Variable.CHECK_TIMEOUT, "300"),
        (Variable.CHECK_TIMEOUT, "0s"),
        (Variable.GANG_TIMEOUT, "48h"),
        (Variable.REPORT_TIMEOUT, "soon"),
        (Variable.DIAG_LEVEL, "3"),
        (Variable.HOSTENGINE, "dcgm"),
        (Variable.HOSTENGINE, "dcgm:70000"),
        (Variable.HOSTENGINE, "-x:5555"),
        (Variable.LOOPBACK_THRESHOLD, "fast"),
        (Variable.ALLREDUCE_THRESHOLD, "nan"),
        (Variable.BANDWIDTH_THRESHOLD, "-1"),
        (Variable.BANDWIDTH_THRESHOLD, "1e12"),
        (Variable.TOPOLOGY_MAPPING, "{"),
        (Variable.TOPOLOGY_MAPPING, '{"p5": "../p5.xml"}'),
        (Variable.TOPOLOGY_FALLBACK, "maybe"),
        (Variable.NOT_RUN, "ignore"),
    ],
)
def test_an_invalid_value_is_named_with_its_variable(variable: Variable, value: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_check_settings(SOCKET | {variable: value})
    assert refused.value.variable == variable
    assert str(refused.value).startswith(f"{variable} is ")


def test_nowhere_to_report_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Nothing says where results are reported"):
        read_check_settings({})


def test_a_missing_file_of_the_gateway_is_refused(tmp_path: Path) -> None:
    environ: dict[str, str] = {Variable.TARGET: "gateway:9444", Variable.TARGET_CA_FILE: str(tmp_path / "ca.crt")}
    with pytest.raises(ConfigurationError, match="which is no file"):
        read_check_settings(environ)
