"""What of a request to create a container is replaced, and what stays."""

import pytest

from gpuledger.runtimeproxy.cri_pb2 import CDIDevice, ContainerConfig, Device, KeyValue, Mount
from gpuledger.runtimeproxy.decide import ContainerGpus
from gpuledger.runtimeproxy.injection import DeviceNaming, inject

GPUS = ContainerGpus(("GPU-a", "GPU-b"), {"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b", "CUDA_DEVICE_SM_LIMIT": "50"})
ENV = DeviceNaming()
CDI = DeviceNaming(by_env=False, cdi_kind="example.com/card")


def config(**fields: object) -> ContainerConfig:
    return ContainerConfig(**fields)  # type: ignore[arg-type]


def envs(**variables: str) -> list[KeyValue]:
    return [KeyValue(key=key, value=value.encode()) for key, value in variables.items()]


def variables_of(given: ContainerConfig) -> list[tuple[str, str]]:
    return [(one.key, one.value.decode()) for one in given.envs]


def node(host: str, container: str | None = None) -> Device:
    return Device(host_path=host, container_path=container or host, permissions="rw")


def mount(host: str, container: str) -> Mount:
    return Mount(host_path=host, container_path=container)


def test_variables_of_others_are_replaced() -> None:
    given = config(
        envs=envs(
            A="1",
            NVIDIA_VISIBLE_DEVICES="GPU-x",
            CUDA_DEVICE_MEMORY_LIMIT="3g",
            CUDA_DEVICE_MEMORY_LIMIT_0="1",
            CUDA_DEVICE_SM_LIMIT="50",
            CUDA_DEVICE_SM_LIMIT_1="9",
            NVIDIA_DRIVER_CAPABILITIES="all",
            B="2",
        )
    )
    assert inject(given, GPUS, ENV) == (
        "env NVIDIA_VISIBLE_DEVICES=GPU-x",
        "env CUDA_DEVICE_MEMORY_LIMIT=3g",
        "env CUDA_DEVICE_MEMORY_LIMIT_0=1",
        "env CUDA_DEVICE_SM_LIMIT_1=9",
    )
    assert variables_of(given) == [
        ("A", "1"),
        ("NVIDIA_DRIVER_CAPABILITIES", "all"),
        ("B", "2"),
        ("NVIDIA_VISIBLE_DEVICES", "GPU-a,GPU-b"),
        ("CUDA_DEVICE_SM_LIMIT", "50"),
    ]


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("nvidia.com/gpu=0", True),
        ("nvidia.com/gpu=GPU-x", True),
        ("nvidia.com/mig=MIG-x", True),
        ("k8s.device-plugin.nvidia.com/gpu=GPU-x", True),
        ("management.nvidia.com/gpu=all", True),
        ("example.com/card=GPU-x", True),
        ("nvidia.com/gds=all", False),
        ("evilnvidia.com/gpu=0", False),
        ("vendor.com/net=eth1", False),
    ],
)
def test_cdi_devices_that_are_cards_go(name: str, goes: bool) -> None:
    given = config(CDI_devices=[CDIDevice(name=name)], annotations={"cdi.k8s.io/plugin": name, "other": name})
    assert inject(given, GPUS, CDI) == ((f"cdi {name}",) * 2 if goes else ())
    ours = ["example.com/card=GPU-a", "example.com/card=GPU-b"]
    assert [one.name for one in given.CDI_devices] == ([] if goes else [name]) + ours
    assert dict(given.annotations) == {"other": name} | ({} if goes else {"cdi.k8s.io/plugin": name})
    assert variables_of(given)[0] == ("NVIDIA_VISIBLE_DEVICES", "void")


def test_an_annotation_keeps_what_is_no_card() -> None:
    given = config(annotations={"cdi.k8s.io/a": "vendor.com/net=x,nvidia.com/gpu=0, nvidia.com/gpu=1"})
    assert inject(given, GPUS, ENV) == ("cdi nvidia.com/gpu=0", "cdi nvidia.com/gpu=1")
    assert dict(given.annotations) == {"cdi.k8s.io/a": "vendor.com/net=x"}


def test_device_nodes_and_mounts_of_cards_go_and_shared_ones_stay() -> None:
    kept = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/fuse"]
    given = config(
        devices=[node("/dev/nvidia0"), *map(node, kept), node("/dev/x", "/dev/nvidia12"), node("//dev/./nvidia3")],
        mounts=[
            mount("/dev/null", "/var/run/nvidia-container-devices/GPU-x"),
            mount("/data", "/data"),
            mount("/dev/nvidia1", "/mnt/card"),
            mount("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
        ],
    )
    assert inject(given, GPUS, ENV) == (
        "device /dev/nvidia0",
        "device /dev/x",
        "device //dev/./nvidia3",
        "mount /var/run/nvidia-container-devices/GPU-x",
        "mount /mnt/card",
    )
    assert [one.host_path for one in given.devices] == kept
    assert [one.host_path for one in given.mounts] == ["/data", "/usr/bin/nvidia-smi"]


def test_mig_instances_go_too() -> None:
    given = config(devices=[node("/dev/nvidia-caps/nvidia-cap21"), node("/dev/nvidia-caps-imex-channels/channel0")])
    assert inject(given, GPUS, ENV) == ("device /dev/nvidia-caps/nvidia-cap21",)
    assert len(given.devices) == 1


def test_a_container_without_gpus_gets_none_by_cdi_either() -> None:
    given = config(CDI_devices=[CDIDevice(name="nvidia.com/gpu=0")])
    none = ContainerGpus((), {"NVIDIA_VISIBLE_DEVICES": "void"})
    assert inject(given, none, DeviceNaming(cdi_kind="nvidia.com/gpu")) == ("cdi nvidia.com/gpu=0",)
    assert (list(given.CDI_devices), variables_of(given)) == ([], [("NVIDIA_VISIBLE_DEVICES", "void")])
