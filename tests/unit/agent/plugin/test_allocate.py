"""Containers get the devices of their units by UUID, each once, by the environment or by CDI."""

import pytest

from gpuledger.agent.errors import CdiError, UnknownUnitError
from gpuledger.agent.plugin.allocate import ContainerAllocation, DeviceInjection, allocate
from gpuledger.agent.settings import Strategy
from support.kubelet_parts import slices, whole_cards

UNITS = {unit.id: unit for unit in (*whole_cards(0, 1), *slices(2, 3))}
NVIDIA = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("requested", "visible"),
    [
        (["GPU-0"], "GPU-0"),
        (["GPU-1", "GPU-0"], "GPU-1,GPU-0"),
        (["GPU-2::1"], "GPU-2"),
        (["GPU-2::2", "GPU-0", "GPU-2::0"], "GPU-2,GPU-0"),
        (["GPU-0", "GPU-0"], "GPU-0"),
    ],
)
def test_devices_are_handed_over_once_in_the_order_requested(requested: list[str], visible: str) -> None:
    assert allocate(UNITS, requested, DeviceInjection(), None) == ContainerAllocation(
        {"NVIDIA_VISIBLE_DEVICES": visible}, ()
    )


@pytest.mark.parametrize(
    ("strategy", "envs", "cdi"),
    [
        ("env", {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}, ()),
        ("cdi", {}, (f"{NVIDIA}=GPU-0",)),
        ("both", {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}, (f"{NVIDIA}=GPU-0",)),
    ],
)
def test_a_strategy_reports_by_which_way(strategy: Strategy, envs: dict[str, str], cdi: tuple[str, ...]) -> None:
    assert allocate(UNITS, ["GPU-0"], DeviceInjection(strategy), None) == ContainerAllocation(envs, cdi)


def test_another_kind_makes_other_names() -> None:
    assert allocate(UNITS, ["GPU-0"], DeviceInjection("cdi", "example.com/card"), None).cdi_devices == (
        "example.com/card=GPU-0",
    )


def test_units_that_are_not_there_are_named() -> None:
    with pytest.raises(UnknownUnitError, match="no units GPU-7, GPU-2::9;"):
        allocate(UNITS, ["GPU-7", "GPU-0", "GPU-2::9", "GPU-7"], DeviceInjection(), None)


def test_a_request_without_units_is_refused() -> None:
    with pytest.raises(UnknownUnitError, match="names no units"):
        allocate(UNITS, [], DeviceInjection(), None)


def test_a_device_that_no_specification_names_is_refused() -> None:
    named = frozenset({f"{NVIDIA}=GPU-0"})
    assert allocate(UNITS, ["GPU-0"], DeviceInjection("cdi"), named).cdi_devices == (f"{NVIDIA}=GPU-0",)
    with pytest.raises(CdiError, match=r"names nvidia.com/gpu=GPU-1\. Write one with `nvidia-ctk cdi generate"):
        allocate(UNITS, ["GPU-0", "GPU-1"], DeviceInjection("both"), named)
    assert allocate(UNITS, ["GPU-1"], DeviceInjection("env"), named).envs
