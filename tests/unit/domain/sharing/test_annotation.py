"""DeviceAllocations: those of others as they were recorded, our own, and what cannot be read."""

import json
import re

import pytest

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.sharing.annotation import minors_list, read_allocation, write_allocation
from gpuledger.domain.sharing.model import Allocated, Device, VirtualFunction
from support.paths import ROOT

NAMES = SharingNames()
MI = 2**20
RECORDINGS = ROOT.parent / "shared" / "recordings" / "koordinator"
recorded = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"no recordings in {RECORDINGS}")

SEED = """{
  "gpu": [
    {"minor": 0, "resources": {
      "kooperator/gpu-core": 100, "kooperator/gpu-memory-ratio": 100, "kooperator/gpu-memory": "16Gi"}}
  ],
  "rdma": [{"minor": 1, "id": "0000:10:00.0", "resources": {"kooperator/rdma": 100}}]
}"""


def annotation_in(name: str) -> str:
    found = re.search(r"device-allocated: '(.*)'", (RECORDINGS / name).read_text())
    assert found is not None
    return found[1]


def test_the_example_of_the_seed_has_numbers_for_quantities() -> None:
    assert read_allocation(SEED, NAMES) == {
        "gpu": (Allocated(0, {"gpu-core": 100, "gpu-memory-ratio": 100, "gpu-memory": 16384 * MI}),),
        "rdma": (Allocated(1, {"rdma": 100}, (), "0000:10:00.0"),),
    }


@pytest.mark.shared
@recorded
def test_half_a_gpu_as_recorded_under_another_domain() -> None:
    half = Allocated(1, {"gpu-core": 50, "gpu-memory": 11520 * MI, "gpu-memory-ratio": 50})
    assert read_allocation(annotation_in("pod-device-allocated-hami-share.yaml"), NAMES) == {"gpu": (half,)}


@pytest.mark.shared
@recorded
def test_a_function_as_recorded_has_no_number() -> None:
    assert read_allocation(annotation_in("pod-device-allocated-joint-rdma.yaml"), NAMES) == {
        "gpu": (Allocated(0, {"gpu-core": 100, "gpu-memory": 23040 * MI, "gpu-memory-ratio": 100}),),
        "rdma": (Allocated(0, {"rdma": 1}, (VirtualFunction(-1, "0000:01:00.2"),)),),
    }


@pytest.mark.shared
@recorded
def test_what_a_proposal_printed_is_not_json() -> None:
    with pytest.raises(ValueError, match="it is not JSON"):
        read_allocation(annotation_in("pod-device-allocated-malformed.txt"), NAMES)


@pytest.mark.parametrize(
    ("resources", "amounts"),
    [
        ({"kubernetes.io/gpu-memory": "15472384Ki"}, {"gpu-memory": 15472384 * 1024}),
        ({"gpu-core": "50", "gpu-memory-ratio": 0}, {"gpu-core": 50}),
        ({"kooperator/gpu-core": "30", "koordinator.sh/gpu-core": "50"}, {"gpu-core": 30}),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": 1}),
        (None, {}),
    ],
)
def test_resources_of_any_domain(resources: object, amounts: dict[str, int]) -> None:
    text = json.dumps({"gpu": [{"minor": 3, "resources": resources}]})
    assert read_allocation(text, NAMES) == {"gpu": (Allocated(3, amounts),)}


def test_a_type_without_devices_is_left_out() -> None:
    assert read_allocation('{"gpu":[],"rdma":null}', NAMES) == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("incorrect-device-allocation", "it is not JSON"),
        ("null", "it has to be a JSON object"),
        ('{"gpu":{}}', "gpu has to be a list"),
        ('{"gpu":[7]}', r"gpu\[0\] has to be a JSON object"),
        ('{"gpu":[{}]}', r"gpu\[0\].minor has to be a whole number from 0"),
        ('{"gpu":[{"minor":-1}]}', r"gpu\[0\].minor has to be a whole number from 0"),
        ('{"gpu":[{"minor":true}]}', r"gpu\[0\].minor has to be a whole number"),
        ('{"gpu":[{"minor":0,"resources":{"kooperator/gpu-core":"some"}}]}', "which is no quantity"),
        ('{"gpu":[{"minor":0,"resources":{"kooperator/gpu-core":"-1"}}]}', "it has to be a whole number"),
        ('{"gpu":[{"minor":0,"resources":{"kooperator/gpu-core":"500m"}}]}', "it has to be a whole number"),
        ('{"gpu":[{"minor":0,"resources":{"kooperator/":"5"}}]}', "a resource's name has to be a text"),
        ('{"gpu":[{"minor":0,"id":5}]}', r"gpu\[0\].id has to be a text"),
        ('{"rdma":[{"minor":0,"extension":{"vfs":[{"minor":-2,"busID":"a"}]}}]}', r"vfs\[0\].minor has to be"),
        ('{"rdma":[{"minor":0,"extension":{"vfs":[{"minor":0}]}}]}', r"vfs\[0\].busID has to be a text"),
        ('{"":[{"minor":0}]}', "a type of device has to be a text"),
    ],
)
def test_what_cannot_be_read_says_where(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_allocation(text, NAMES)


def test_what_is_written_has_ids_of_the_devices_and_quantities() -> None:
    allocation = {
        "rdma": (Allocated(0, {"rdma": 1}, (VirtualFunction(-1, "0000:01:00.2"),)),),
        "gpu": (Allocated(1, {"gpu-core": 50, "gpu-memory": 11520 * MI}, (), "GPU-own"), Allocated(0, {})),
    }
    devices = {"gpu": {0: Device("gpu", 0, True, {}, id="GPU-0"), 1: Device("gpu", 1, True, {}, id="GPU-1")}}
    text = write_allocation(allocation, devices, SharingNames("koordinator.sh"))
    assert json.loads(text) == {
        "gpu": [
            {"minor": 0, "resources": {}, "id": "GPU-0"},
            {
                "minor": 1,
                "resources": {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory": "11520Mi"},
                "id": "GPU-own",
            },
        ],
        "rdma": [
            {
                "minor": 0,
                "resources": {"koordinator.sh/rdma": "1"},
                "extension": {"vfs": [{"minor": -1, "busID": "0000:01:00.2"}]},
            }
        ],
    }


def test_minors_are_joined_by_commas() -> None:
    assert minors_list([Allocated(0, {}), Allocated(2, {})]) == "0,2"
