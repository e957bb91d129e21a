"""CEL selectors of devices: the device as they see it, and expressions that fail."""

import pytest

from gpuledger.domain.dra.candidates import SelectorInput
from gpuledger.events.slice import DeviceCapacity, SliceDevice, Version
from gpuledger.tools.explain.device_selectors import selects

DRIVER = "gpu.example.com"
OWN = f'device.attributes["{DRIVER}"]'
DEVICE = SelectorInput(
    DRIVER,
    SliceDevice(
        name="gpu-0",
        attributes={
            "model": "A100",
            "index": 3,
            "healthy": True,
            "driverVersion": Version(version="1.20.3"),
            "resource.kubernetes.io/numa": 1,
        },
        capacity={"memory": DeviceCapacity(value="80Gi")},
    ),
)


@pytest.mark.parametrize(
    ("expression", "is_selected"),
    [
        (f'device.driver == "{DRIVER}"', True),
        ('device.driver == "other.example.com"', False),
        (f'{OWN}.model == "A100"', True),
        (f'{OWN}["model"] == "A100"', True),
        (f"{OWN}.index > 2 && {OWN}.healthy", True),
        (f'{OWN}.driverVersion.isGreaterThan(semver("1.3.0"))', True),
        ('device.attributes["resource.kubernetes.io"].numa == 1', True),
        ('device.attributes[device.driver].model.startsWith("A")', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("81920Mi")) == 0', True),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("81Gi"))', False),
        (f'"model" in {OWN}', True),
        (f'has({OWN}.nothing) && {OWN}.nothing == "x"', False),
        ('"other.example.com" in device.attributes', False),
        ('has(device.attributes["other.example.com"].model)', False),
        ('device.attributes["other.example.com"].?model.orValue("none") == "none"', True),
        (f'cel.bind(own, {OWN}, own.model == "A100" && own.index == 3)', True),
        ("device.allowMultipleAllocations", False),
    ],
)
def test_what_a_selector_selects(expression: str, is_selected: bool) -> None:
    assert selects(expression, DEVICE) is is_selected


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (f'{OWN}.nothing == "x"', "no such key: nothing"),
        ('device.attributes["other.example.com"].model == "x"', "no such key: model"),
        (f"{OWN}.model", "it is 'A100', neither true nor false"),
        (f"{OWN}.model ==", "it does not compile"),
        (f"{OWN}.model > 3", "No such overload"),
        ("unknown == 1", "Undefined variable or function: 'unknown'"),
    ],
)
def test_a_failing_selector_gives_its_reason_in_a_line(expression: str, why: str) -> None:
    verdict = selects(expression, DEVICE)
    assert isinstance(verdict, str)
    assert why in verdict
    assert "\n" not in verdict


def test_what_can_be_shared_is_seen() -> None:
    shared = DEVICE._replace(payload=DEVICE.payload.model_copy(update={"shareable": True}))
    assert selects("device.allowMultipleAllocations", shared) is True
