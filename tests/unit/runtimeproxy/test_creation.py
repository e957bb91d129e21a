"""Requests to create containers: which are changed, which are refused, which pass as they are, and what is reported."""

from collections.abc import Callable

import pytest

from gpuledger.events.runtime import NodeContainerDevicesInjected, NodeContainerDevicesRefused
from gpuledger.runtimeproxy.cri_pb2 import CreateContainerRequest
from gpuledger.runtimeproxy.errors import CallRefusedError
from support.created_containers import NAMES, WHOLE_CARD, RecordedFacts, create_request, creation, variables_of

MARK = NAMES.allocated.encode()
DEFECT = RuntimeError("a defect")


async def test_the_pods_devices_replace_those_of_the_plugin_and_it_is_reported_after_success() -> None:
    facts = RecordedFacts()
    request = create_request(WHOLE_CARD, NVIDIA_VISIBLE_DEVICES="GPU-x", A="1")
    changed = await creation(facts).change(request.SerializeToString())
    assert variables_of(CreateContainerRequest.FromString(changed.message)) == {
        "A": "1",
        "NVIDIA_VISIBLE_DEVICES": "GPU-a",
    }
    assert facts.payloads == []
    assert changed.on_success is not None
    await changed.on_success()
    assert facts.payloads == [
        NodeContainerDevicesInjected(
            pod="team/train",
            uid="u1",
            container="main",
            attempt=2,
            devices=("GPU-a",),
            variables={"NVIDIA_VISIBLE_DEVICES": "GPU-a"},
            replaced=("env NVIDIA_VISIBLE_DEVICES=GPU-x",),
        )
    ]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xff\xff", id="unreadable"),
        pytest.param(create_request(A="1").SerializeToString(), id="no annotation"),
        pytest.param(create_request(A=NAMES.allocated).SerializeToString() + b"\xc2\x3e\x01z", id="the name elsewhere"),
        pytest.param(create_request({"rdma": []}).SerializeToString(), id="no GPUs"),
    ],
)
async def test_every_other_request_passes_as_it_is(message: bytes) -> None:
    facts = RecordedFacts()
    changed = await creation(facts).change(message)
    assert (changed.message, changed.on_success, facts.payloads) == (message, None, [])


@pytest.mark.parametrize(
    ("message", "node", "text"),
    [
        pytest.param(MARK + b"\xff", None, "cannot be read", id="unreadable request"),
        pytest.param(create_request("{").SerializeToString(), None, "unreadable", id="unreadable annotation"),
        pytest.param(create_request(WHOLE_CARD).SerializeToString(), DEFECT, "a defect", id="a defect of ours"),
    ],
)
async def test_a_pod_with_an_allocation_fails_closed(message: bytes, node: Exception | None, text: str) -> None:
    with pytest.raises(CallRefusedError, match=text):
        await creation(RecordedFacts(), node).change(message)


async def test_a_defect_of_ours_stops_no_other_pod() -> None:
    message = create_request(NVIDIA_VISIBLE_DEVICES="GPU-x").SerializeToString()
    assert (await creation(RecordedFacts(), DEFECT).change(message)).message == message


async def test_a_container_with_gpus_that_nobody_assigned_is_noticed_once_it_is_there() -> None:
    seen: list[None] = []
    request = create_request(NVIDIA_VISIBLE_DEVICES="GPU-x").SerializeToString()
    changed = await creation(RecordedFacts(), unassigned=seen).change(request)
    assert seen == []
    assert changed.on_success is not None
    await changed.on_success()
    assert seen == [None]


async def test_the_kubelets_repeats_are_recorded_once() -> None:
    facts = RecordedFacts()
    change = creation(facts).change
    for text in ("{", "{", "[]", "{"):
        with pytest.raises(CallRefusedError):
            await change(create_request(text).SerializeToString())
    refused = [one for one in facts.payloads if isinstance(one, NodeContainerDevicesRefused)]
    assert len(refused) == 3
    assert {one.reason for one in refused} == {"UnreadableAnnotation"}
    assert {(one.pod, one.uid, one.container) for one in refused} == {("team/train", "u1", "main")}


@pytest.mark.parametrize("method", ["v1", "v1alpha2"])
def test_both_versions_of_cri_are_changed(method: str) -> None:
    changes: dict[str, Callable[..., object]] = dict(creation(RecordedFacts()).changes())
    assert f"/runtime.{method}.RuntimeService/CreateContainer" in changes
