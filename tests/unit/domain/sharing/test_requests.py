"""What amounts of a pod mean, by table: the number of devices, the amounts of each, and every refusal."""

from collections.abc import Mapping

import pytest

from gpuledger.domain.sharing.hints import NO_HINTS, PodHints
from gpuledger.domain.sharing.model import Device, Hint, PodRequest, Refusal, TypeRequest
from gpuledger.domain.sharing.requests import normalised, on_devices, request_of, type_of
from gpuledger.domain.sharing.selectors import read_selector

GI = 2**30
Amounts = Mapping[str, int]

WHOLE_ONE = {"gpu-core": 100, "gpu-memory-ratio": 100}


def request(amounts: Amounts, hints: PodHints = NO_HINTS) -> PodRequest:
    found = request_of(amounts, hints)
    assert isinstance(found, PodRequest), found
    return found


def refusal(amounts: Amounts, hints: PodHints = NO_HINTS) -> str:
    found = request_of(amounts, hints)
    assert isinstance(found, Refusal), found
    assert found.unresolvable
    return found.reason


@pytest.mark.parametrize(
    ("amounts", "number", "per_device", "shared"),
    [
        ({"nvidia.com/gpu": 1}, 1, WHOLE_ONE, False),
        ({"nvidia.com/gpu": 8}, 8, WHOLE_ONE, False),
        ({"gpu": 50}, 1, {"gpu-core": 50, "gpu-memory-ratio": 50}, True),
        ({"gpu": 100}, 1, WHOLE_ONE, False),
        ({"gpu": 300}, 3, WHOLE_ONE, False),
        ({"gpu-memory-ratio": 30}, 1, {"gpu-memory-ratio": 30}, True),
        ({"gpu-memory-ratio": 200}, 2, {"gpu-memory-ratio": 100}, False),
        ({"gpu-memory": 4 * GI}, 1, {"gpu-memory": 4 * GI}, True),
        ({"gpu-core": 60, "gpu-memory": 4 * GI}, 1, {"gpu-core": 60, "gpu-memory": 4 * GI}, True),
        ({"gpu-core": 50, "gpu-memory-ratio": 60}, 1, {"gpu-core": 50, "gpu-memory-ratio": 60}, True),
        ({"gpu-core": 200, "gpu-memory": 64 * GI}, 1, {"gpu-core": 200, "gpu-memory": 64 * GI}, True),
        ({"gpu-core": 50, "gpu-memory-ratio": 200}, 2, {"gpu-core": 25, "gpu-memory-ratio": 100}, False),
        ({"gpu-memory-ratio": 100, "gpu.shared": 2}, 2, {"gpu-memory-ratio": 50}, True),
        ({"gpu-memory-ratio": 200, "gpu.shared": 2}, 2, {"gpu-memory-ratio": 100}, False),
        (
            {"gpu-core": 80, "gpu-memory": 8 * GI, "gpu.shared": 4},
            4,
            {"gpu-core": 20, "gpu-memory": 2 * GI},
            True,
        ),
        ({"gpu-memory": 7, "gpu.shared": 2}, 2, {"gpu-memory": 3}, True),
    ],
)
def test_gpus(amounts: Amounts, number: int, per_device: Amounts, shared: bool) -> None:
    (found,) = request(amounts).types
    assert found == TypeRequest("gpu", number, per_device, shared)


@pytest.mark.parametrize("kind", ["rdma", "fpga", "card-of-tomorrow"])
@pytest.mark.parametrize(("amount", "number", "each"), [(1, 1, 1), (50, 1, 50), (100, 1, 100), (300, 3, 100)])
def test_all_other_types_follow_one_rule(kind: str, amount: int, number: int, each: int) -> None:
    assert request({kind: amount}).types == (TypeRequest(kind, number, {kind: each}, shared=False),)


@pytest.mark.parametrize(
    ("amounts", "reason"),
    [
        ({"gpu": 101}, "gpu: 101 is neither a share of one device (1 to 100) nor whole ones (multiples of 100)"),
        ({"gpu-core": 100, "gpu-memory-ratio": 101}, "gpu-memory-ratio: 101"),
        ({"gpu-core": 150, "gpu-memory": GI}, "gpu-core: 150"),
        ({"rdma": 201}, "rdma: 201"),
        ({"fpga": 250}, "fpga: 250"),
        ({"gpu-core": 100}, "gpu-core does not stand alone"),
        ({"gpu.shared": 2}, "gpu.shared does not stand alone"),
        ({"gpu": 100, "gpu.shared": 1}, "gpu, gpu.shared do not go together"),
        ({"gpu-core": 10, "gpu.shared": 1}, "gpu-core, gpu.shared"),
        ({"gpu-memory": GI, "gpu-memory-ratio": 5}, "gpu-memory, gpu-memory-ratio"),
        ({"nvidia.com/gpu": 1, "gpu": 100}, "gpu, nvidia.com/gpu"),
        ({"gpu-memory-ratio": 101, "gpu.shared": 2}, "cannot be divided by gpu.shared: 2; ask for a multiple of 2"),
        ({"gpu-memory-ratio": 300, "gpu.shared": 2}, "more than 100 on each of 2 GPUs; the most is 200"),
        ({"gpu-core": 101, "gpu-memory": GI, "gpu.shared": 2}, "gpu-core: 101 cannot be divided"),
        ({"gpu-memory": 1, "gpu.shared": 2}, "less than a byte"),
        ({"gpu-mem": GI}, "gpu-mem is no resource of GPUs"),
        ({"gpu-memory": -1}, "gpu-memory: -1 is negative"),
    ],
)
def test_refusals_say_what_is_wrong(amounts: Amounts, reason: str) -> None:
    assert reason in refusal(amounts)


@pytest.mark.parametrize("amounts", [{}, {"gpu": 0}, {"gpu": 0, "rdma": 0}])
def test_nothing_is_no_request(amounts: Amounts) -> None:
    assert request_of(amounts) is None


def test_amounts_of_zero_are_as_if_they_were_not_there() -> None:
    assert request({"gpu": 50, "gpu-memory": 0, "gpu.shared": 0}) == request({"gpu": 50})


def test_types_are_independent_and_gpus_come_first() -> None:
    found = request({"rdma": 200, "fpga": 30, "gpu": 50})
    assert [(one.type, one.number) for one in found.types] == [("gpu", 1), ("fpga", 1), ("rdma", 2)]
    assert found.of("rdma") == found.types[2]


def test_normalised_goes_by_type() -> None:
    assert normalised({"gpu": 50, "rdma": 1}) == {
        "gpu": {"gpu-core": 50, "gpu-memory-ratio": 50},
        "rdma": {"rdma": 1},
    }


@pytest.mark.parametrize(("resource", "kind"), [("nvidia.com/gpu", "gpu"), ("gpu.shared", "gpu"), ("rdma", "rdma")])
def test_type_of_a_resource(resource: str, kind: str) -> None:
    assert type_of(resource) == kind


@pytest.mark.parametrize(
    ("hint", "number", "each"),
    [
        (Hint(allocate_strategy="RequestsAsCount"), 4, 1),
        (Hint(allocate_strategy="RequestsAsCount", exclusive_policy="DeviceLevel"), 4, 100),
        (Hint(allocate_strategy="ApplyForAll"), 1, 4),
    ],
)
def test_hints_say_what_the_amount_means(hint: Hint, number: int, each: int) -> None:
    (found,) = request({"rdma": 4}, PodHints({"rdma": hint})).types
    assert found == TypeRequest("rdma", number, {"rdma": each}, shared=False, hint=hint)


NICS = [
    Device("rdma", 1, True, {"rdma": 100}, labels={"type": "nic"}),
    Device("rdma", 2, False, {}, labels={"type": "nic"}),
    Device("rdma", 3, True, {"rdma": 100}, labels={"type": "storage"}),
]


@pytest.mark.parametrize(("selector", "number"), [({"matchLabels": {"type": "nic"}}, 2), ({}, 3), (None, 3)])
def test_apply_for_all_takes_every_selected_device(selector: dict[str, object] | None, number: int) -> None:
    given = None if selector is None else read_selector(selector, "selector")
    (one,) = request({"rdma": 5}, PodHints({"rdma": Hint(given, allocate_strategy="ApplyForAll")})).types
    found = on_devices(one, NICS)
    assert isinstance(found, TypeRequest)
    assert (found.number, found.per_device) == (number, {"rdma": 5})


def test_apply_for_all_of_nothing_is_refused() -> None:
    nothing = read_selector({"matchLabels": {"type": "tape"}}, "selector")
    (one,) = request({"rdma": 5}, PodHints({"rdma": Hint(nothing, allocate_strategy="ApplyForAll")})).types
    found = on_devices(one, NICS)
    assert isinstance(found, Refusal)
    assert found.unresolvable


def test_without_apply_for_all_the_devices_do_not_matter() -> None:
    (one,) = request({"rdma": 300}).types
    assert on_devices(one, []) is one
