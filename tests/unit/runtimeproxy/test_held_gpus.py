"""The GPUs of a running container, in what containerd and CRI-O say about it."""

import json
from typing import Any

import pytest

from gpuledger.runtimeproxy.held_gpus import held_gpus

A, B = "GPU-36b27e44-b086-46f7-f2dc-73c36dc65991", "MIG-5c1fbf3e-2a5d-5c2b-8f5e-1a2b3c4d5e6f"


def env(*variables: str) -> dict[str, Any]:
    return {"runtimeSpec": {"process": {"env": list(variables)}}}


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        pytest.param(env("PATH=/bin", f"NVIDIA_VISIBLE_DEVICES={A},{B}"), (A, B), id="by variable"),
        pytest.param(env(f"NVIDIA_VISIBLE_DEVICES={A}", f"NVIDIA_VISIBLE_DEVICES={B}"), (B,), id="the last counts"),
        pytest.param(env("NVIDIA_VISIBLE_DEVICES=all"), (), id="the image's, all"),
        pytest.param(env("NVIDIA_VISIBLE_DEVICES=0,1"), (), id="indices mean nothing later"),
        pytest.param(env("NVIDIA_VISIBLE_DEVICES=MIG-GPU-36b27e44/7/0"), ("MIG-GPU-36b27e44/7/0",), id="old MIG"),
        pytest.param(env("NVIDIA_VISIBLE_DEVICES"), (), id="no value"),
        pytest.param(
            {"runtimeSpec": {"mounts": [{"destination": f"/var/run/nvidia-container-devices/{A}"}, {}, 5]}},
            (A,),
            id="by mount",
        ),
        pytest.param({"config": {"CDI_devices": [{"name": f"nvidia.com/gpu={A}"}, {"name": "x"}]}}, (A,), id="by CDI"),
        pytest.param(
            {"config": {"annotations": {"cdi.k8s.io/plugin": f"a.b/net=x, k8s.device-plugin.nvidia.com/gpu={A}"}}},
            (A,),
            id="by CDI annotation",
        ),
        pytest.param(
            env(f"NVIDIA_VISIBLE_DEVICES={A}") | {"config": {"CDI_devices": [{"name": f"nvidia.com/gpu={A}"}]}},
            (A,),
            id="each once",
        ),
        pytest.param([], (), id="no object"),
        pytest.param({"runtimeSpec": [], "config": {"annotations": []}}, (), id="of other types"),
    ],
)
def test_what_a_container_has(details: Any, expected: tuple[str, ...]) -> None:
    assert held_gpus({"info": json.dumps(details)}) == expected


@pytest.mark.parametrize("info", [{}, {"info": ""}, {"info": "{"}, {"other": "{}"}])
def test_details_that_cannot_be_read_are_none(info: dict[str, str]) -> None:
    assert held_gpus(info) == ()
