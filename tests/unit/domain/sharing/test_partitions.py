"""Partitions of linked GPUs: tables, when they decide, and which of them a request gets."""

import pytest

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY_RATIO
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.hints import PodHints
from gpuledger.domain.sharing.model import Hint, NodeState, Partition, PartitionSpec, PodRequest, Refusal, Scope
from gpuledger.domain.sharing.partition_tables import (
    HONOR,
    LINKED_EIGHT,
    PREFER,
    Table,
    built_in_table,
    policy_of,
    read_table,
    table_of,
    written_table,
)
from support.shared_nodes import LEAST, chosen, eight, gpu, gpus, node, request


def whole(number: int, spec: PartitionSpec | None = None, scope: Scope | None = None) -> PodRequest:
    return request({GPU: 100 * number}, PodHints({GPU: Hint(required_scope=scope)}, partition=spec))


def linked(*busy: int, policy: str | None = HONOR, table: Table = LINKED_EIGHT) -> NodeState:
    state = node(*map(gpu, range(8)), held={"a": gpus(*busy)} if busy else None)
    state.partition_policy, state.partitions = policy, table
    return state


@pytest.mark.parametrize(
    ("number", "busy", "minors"),
    [
        pytest.param(1, [4], [5], id="one completes the pair"),
        pytest.param(2, [4], [6, 7], id="two keep the quartet whole"),
        pytest.param(1, [], [0], id="the first of equals"),
        pytest.param(4, [1], [4, 5, 6, 7], id="a quartet that is not used at all"),
        pytest.param(4, [1, 4], None, id="no quartet is free"),
        pytest.param(3, [], None, id="no partition of three"),
        pytest.param(8, [], list(range(8)), id="all"),
    ],
)
def test_honored_partitions(number: int, busy: list[int], minors: list[int] | None) -> None:
    assert chosen(linked(*busy), whole(number)) == (minors and {GPU: minors})


def test_other_number_cannot_be_helped_by_preemption() -> None:
    number = allocate(linked(), whole(3), LEAST)
    full = allocate(linked(1, 4), whole(4), LEAST)
    no_table = allocate(linked(table={}), whole(4), LEAST)
    assert isinstance(number, Refusal)
    assert isinstance(full, Refusal)
    assert isinstance(no_table, Refusal)
    assert [number.unresolvable, full.unresolvable, no_table.unresolvable] == [True, False, True]
    assert number.reason == "Insufficient gpu devices: no partition of the node has 3; ask for one of 1, 2, 4, 8."


def test_partition_with_any_use_at_all_does_not_fit() -> None:
    state = linked()
    state.hold("a", gpus(0, percent=1))
    state.hold("b", gpus(3, percent=1))
    assert chosen(state, request({GPU_CORE: 50, GPU_MEMORY_RATIO: 100})) == {GPU: [1]}
    assert chosen(state, whole(2)) == {GPU: [4, 5]}


def test_partition_with_an_unhealthy_gpu_neither_fits_nor_is_worth_anything() -> None:
    state = linked()
    state.set_devices({GPU: {minor: gpu(minor, healthy=minor != 7) for minor in range(8)}})
    assert chosen(state, whole(1)) == {GPU: [6]}
    assert chosen(state, whole(4)) == {GPU: [0, 1, 2, 3]}
    assert chosen(state, whole(8)) is None


def test_partitions_smaller_than_the_request_are_worth_nothing() -> None:
    table = {4: LINKED_EIGHT[4], 2: LINKED_EIGHT[2][:2]}
    assert chosen(linked(table=table), whole(4)) == {GPU: [0, 1, 2, 3]}
    assert chosen(linked(table={4: LINKED_EIGHT[4], 2: LINKED_EIGHT[2][1:]}), whole(2)) == {GPU: [2, 3]}


def test_preferred_partitions_give_way() -> None:
    assert chosen(linked(policy=PREFER), whole(3)) == {GPU: [0, 1, 2]}
    assert chosen(linked(0, 2, 4, 6, policy=PREFER), whole(2)) == {GPU: [1, 3]}
    assert chosen(linked(0, 2, 4, 6, policy=HONOR), whole(2)) is None


def test_without_policy_or_spec_the_table_does_not_count() -> None:
    state = linked(0, policy=None)
    assert chosen(state, whole(2)) == {GPU: [1, 2]}
    assert chosen(state, whole(2, PartitionSpec())) == {GPU: [2, 3]}
    assert chosen(state, whole(3, PartitionSpec())) is None


def test_shares_are_not_partitioned() -> None:
    state = linked()
    state.hold("a", gpus(0, percent=50))
    assert chosen(state, request({GPU_CORE: 50, GPU_MEMORY_RATIO: 50})) == {GPU: [0]}


def scored(**partitions: int) -> Table:
    """Pairs such as `p01` with their scores."""
    return {2: tuple(Partition(frozenset(map(int, name[1:])), "", score) for name, score in partitions.items())}


@pytest.mark.parametrize(
    ("busy", "restricted", "minors"),
    [
        ([], False, [2, 3]),
        ([2], False, [0, 1]),
        ([2], True, None),
        ([], True, [2, 3]),
    ],
)
def test_best_score_first_and_restricted_to_it(busy: list[int], restricted: bool, minors: list[int] | None) -> None:
    state = linked(*busy, table=scored(p01=1, p23=5))
    assert chosen(state, whole(2, PartitionSpec(restricted))) == (minors and {GPU: minors})


def test_bandwidth_that_is_asked_for_has_to_be_stated() -> None:
    pair = Partition(frozenset({2, 3}), "", ring_bus_bandwidth=200)
    state = linked(table={2: (Partition(frozenset({0, 1}), ""), pair)})
    assert chosen(state, whole(2, PartitionSpec(ring_bus_bandwidth=200))) == {GPU: [2, 3]}
    assert chosen(state, whole(2, PartitionSpec(ring_bus_bandwidth=201))) is None
    assert chosen(state, whole(2, PartitionSpec())) == {GPU: [0, 1]}


def test_partition_within_the_required_scope() -> None:
    state = node(*eight())
    state.partition_policy, state.partitions = HONOR, scored(p12=9, p46=5, p01=1)
    assert chosen(state, whole(2)) == {GPU: [1, 2]}
    state.partitions = scored(p34=9, p46=5, p01=1)
    assert chosen(state, whole(2, scope=Scope.NUMA)) == {GPU: [4, 6]}
    assert chosen(state, whole(2, scope=Scope.PCIE)) == {GPU: [0, 1]}


def test_row_with_another_number_of_gpus_than_its_key_never_fits() -> None:
    state = linked(table={2: (Partition(frozenset({0}), ""), Partition(frozenset({1, 2}), ""))})
    assert chosen(state, whole(2)) == {GPU: [1, 2]}


@pytest.mark.parametrize(
    ("model", "linked_eight"),
    [
        ("H800", True),
        ("H100", True),
        ("NVIDIA-H100-80GB-HBM3", True),
        ("NVIDIA-H20", True),
        ("NVIDIA-H100-PCIe", False),
        ("NVIDIA H100 NVL", False),
        ("NVIDIA-H200", False),
        ("Tesla-T4", False),
        ("", False),
        (None, False),
    ],
)
def test_built_in_table(model: str | None, linked_eight: bool) -> None:
    assert built_in_table(model) == (LINKED_EIGHT if linked_eight else None)


def test_annotation_replaces_the_built_in_table() -> None:
    assert table_of(None, "H100") == LINKED_EIGHT
    assert table_of(None, "T4") == {}
    assert table_of('{"2": [{"minors": [0, 1]}]}', "H100") == {2: (Partition(frozenset({0, 1}), ""),)}


def test_table_is_read_as_it_is_written() -> None:
    text = '{"2":[{"minors":[1,0],"gpuLinkType":"NVLink","ringBusBandwidth":"200Gi","allocationScore":10}]}'
    table = read_table(text)
    assert table == {2: (Partition(frozenset({0, 1}), "NVLink", 10, 200 * 2**30),)}
    row = {"minors": [0, 1], "gpuLinkType": "NVLink", "allocationScore": 10, "ringBusBandwidth": str(200 * 2**30)}
    assert written_table(table) == {"2": [row]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no JSON", "it is not JSON"),
        ("[]", "it has to be a JSON object"),
        ('{"two": []}', "'two' is no number of GPUs"),
        ('{"65": []}', "'65' is no number of GPUs"),
        ('{"2": {}}', "2 has to be a list"),
        ('{"2": [{"minors": [-1, 0]}]}', "has to be a whole number"),
        ('{"2": [{"minors": [0, 1], "speed": 1}]}', "has the field 'speed'"),
        ('{"2": [{"minors": [0, 1], "ringBusBandwidth": "fast"}]}', "which is no quantity"),
    ],
)
def test_unreadable_table(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_table(text)


@pytest.mark.parametrize(("label", "policy"), [("Honor", HONOR), ("Prefer", PREFER), ("honor", None), (None, None)])
def test_policy(label: str | None, policy: str | None) -> None:
    assert policy_of(label) == policy
