"""NVIDIA's module has every name that the agent calls, and the fake driver has it in the same form."""

import inspect
import re
from pathlib import Path

import pynvml
import pytest

import gpuledger.agent.hardware.nvml as ours
from gpuledger.agent.hardware.errors import HardwareError
from gpuledger.agent.hardware.nvml_calls import ADVICE, MEANINGS, UNSUPPORTED
from gpuledger.agent.hardware.nvml_health import THROTTLE_REASONS
from support.fake_nvml import FakeNvml

SOURCES = sorted(Path(ours.__file__).parent.glob("nvml*.py"))
NAMES = re.compile(r"(?<![\w.])nvml\.(\w\w+)|\"(NVML_\w+)\"")
FAKED = sorted(name for name in dir(FakeNvml) if name.startswith("nvml"))


def names_in(source: Path) -> set[str]:
    return {one or other for one, other in NAMES.findall(source.read_text().replace("self._nvml.", " nvml."))}


USED = sorted({name for source in SOURCES for name in names_in(source)} - {"NVML_ERROR_", "NVML_"})


def test_names_are_found() -> None:
    assert len(USED) > 90
    assert {"nvmlInit", "nvmlEventSetWait_v2", "NVML_ERROR_GPU_IS_LOST", "c_nvmlGpuInstance_t"} <= set(USED)


@pytest.mark.parametrize("name", USED)
def test_every_name_that_is_used_is_in_the_real_module(name: str) -> None:
    assert hasattr(pynvml, name)


@pytest.mark.parametrize("name", [f"nvmlClocksEventReason{reason}" for reason in THROTTLE_REASONS])
def test_every_reason_for_slow_clocks_is_in_the_real_module(name: str) -> None:
    assert hasattr(pynvml, name)


@pytest.mark.parametrize("errors", ["CORRECTED", "UNCORRECTED"])
def test_kinds_of_ecc_errors_are_in_the_real_module(errors: str) -> None:
    assert hasattr(pynvml, f"NVML_MEMORY_ERROR_TYPE_{errors}")


@pytest.mark.parametrize("since", ["VOLATILE", "AGGREGATE"])
def test_counters_of_ecc_errors_are_in_the_real_module(since: str) -> None:
    assert hasattr(pynvml, f"NVML_{since}_ECC")


def test_every_name_of_an_error_is_one() -> None:
    assert {name for name in (*MEANINGS, *UNSUPPORTED) if not isinstance(getattr(pynvml, name), int)} == set()


def test_every_meaning_comes_with_advice() -> None:
    assert set(MEANINGS.values()) | {HardwareError} == set(ADVICE)


@pytest.mark.parametrize("name", FAKED)
def test_the_fake_takes_what_the_real_module_takes(name: str) -> None:
    real, fake = (list(inspect.signature(call).parameters) for call in (getattr(pynvml, name), getattr(FakeNvml, name)))
    assert fake == ["self", *real]
