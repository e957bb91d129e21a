"""A request to create a container keeps everything but what names cards, fields that no build has included."""

import asyncio
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.runtimeproxy import cri_pb2 as cri
from support.created_containers import NAMES, WHOLE_CARD, RecordedFacts, create_request, creation

TEXTS = st.text("abc/=.-_ 019é", max_size=12)
UNKNOWN = st.lists(st.binary(max_size=8), max_size=2)


def unknown_field(values: list[bytes]) -> bytes:
    """Fields 1000, of bytes."""
    return b"".join(b"\xc2\x3e" + bytes([len(one)]) + one for one in values)


def extended(message: Any, values: list[bytes]) -> Any:
    """The message with fields that no build has."""
    return type(message).FromString(message.SerializeToString() + unknown_field(values))


def texts_or(*special: str) -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(special), TEXTS)


VARIABLES = st.builds(
    lambda key, value, more: extended(cri.KeyValue(key=key, value=value), more),
    texts_or("NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_3"),
    st.binary(max_size=12),
    UNKNOWN,
)
PATHS = texts_or("/dev/nvidia0", "/dev/nvidia11", "/dev/nvidiactl", "/var/run/nvidia-container-devices/GPU-b")
MOUNTS = st.builds(
    lambda host, inside, readonly, more: extended(
        cri.Mount(host_path=host, container_path=inside, readonly=readonly), more
    ),
    PATHS,
    PATHS,
    st.booleans(),
    UNKNOWN,
)
NODES = st.builds(
    lambda host, inside, more: extended(cri.Device(host_path=host, container_path=inside), more), PATHS, PATHS, UNKNOWN
)
CDI_NAMES = texts_or("nvidia.com/gpu=0", "nvidia.com/mig=MIG-1", "vendor.com/net=a")
CDI = st.builds(lambda name, more: extended(cri.CDIDevice(name=name), more), CDI_NAMES, UNKNOWN)
ANNOTATIONS = st.dictionaries(texts_or("cdi.k8s.io/a", "cdi.k8s.io/b"), CDI_NAMES, max_size=3)


@st.composite
def requests(draw: st.DrawFn) -> cri.CreateContainerRequest:
    """A request of a pod with a whole card, and anything else."""
    request = create_request(WHOLE_CARD)
    config = request.config
    config.envs.extend(draw(st.lists(VARIABLES, max_size=5)))
    config.mounts.extend(draw(st.lists(MOUNTS, max_size=4)))
    config.devices.extend(draw(st.lists(NODES, max_size=4)))
    config.CDI_devices.extend(draw(st.lists(CDI, max_size=4)))
    config.annotations.update(draw(ANNOTATIONS))
    config.labels.update(draw(st.dictionaries(TEXTS, TEXTS, max_size=3)))
    config.command.extend(draw(st.lists(TEXTS, max_size=3)))
    config.linux.resources.memory_limit_in_bytes = draw(st.integers(0, 2**62))
    request.sandbox_config.labels.update(draw(st.dictionaries(TEXTS, TEXTS, max_size=3)))
    request.config.CopyFrom(extended(config, draw(UNKNOWN)))
    request.sandbox_config.CopyFrom(extended(request.sandbox_config, draw(UNKNOWN)))
    return cri.CreateContainerRequest.FromString(request.SerializeToString() + unknown_field(draw(UNKNOWN)))


def names_card(text: str) -> bool:
    return bool(re.search(r"^/dev/nvidia[0-9]|nvidia-container-devices/|^nvidia.com/(gpu|mig)=", text))


def without_cards(request: cri.CreateContainerRequest) -> bytes:
    """The request without what the proxy may change, on its way to be compared."""
    copy = cri.CreateContainerRequest.FromString(request.SerializeToString())
    config = copy.config
    for field, is_card in (
        (config.envs, lambda one: one.key.startswith(("NVIDIA_VISIBLE_", "CUDA_DEVICE_"))),
        (config.mounts, lambda one: names_card(one.host_path) or names_card(one.container_path)),
        (config.devices, lambda one: names_card(one.host_path) or names_card(one.container_path)),
        (config.CDI_devices, lambda one: names_card(one.name)),
    ):
        kept: Any = [type(one).FromString(one.SerializeToString()) for one in field if not is_card(one)]
        del field[:]
        field.extend(kept)
    for key, value in list(config.annotations.items()):
        if key.startswith("cdi.k8s.io/") and names_card(value):
            del config.annotations[key]
    return copy.SerializeToString(deterministic=True)


@given(requests())
def test_only_what_names_cards_changes(request: cri.CreateContainerRequest) -> None:
    before = request.SerializeToString()
    changed = asyncio.run(creation(RecordedFacts()).change(before))
    after = cri.CreateContainerRequest.FromString(changed.message)
    assert without_cards(after) == without_cards(request)
    visible = [one.value for one in after.config.envs if one.key == "NVIDIA_VISIBLE_DEVICES"]
    assert visible == [b"GPU-a"]
    placed: list[Any] = [*after.config.devices, *after.config.mounts]
    others = [path for one in placed for path in (one.host_path, one.container_path)]
    others += [one.name for one in after.config.CDI_devices]
    others += [value for key, value in after.config.annotations.items() if key.startswith("cdi.k8s.io/")]
    assert not any(map(names_card, others))


@given(st.binary(max_size=300).filter(lambda one: NAMES.allocated.encode() not in one))
def test_what_names_no_allocation_passes_as_it_is(message: bytes) -> None:
    changed = asyncio.run(creation(RecordedFacts(), RuntimeError("never asked")).change(message))
    assert changed.message == message
