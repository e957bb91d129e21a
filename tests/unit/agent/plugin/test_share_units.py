"""The units of shared devices: their ids, their health, and which of them the kubelet should take."""

import pytest

from gpuledger.agent.board import Board
from gpuledger.agent.plugin.device_list import ID_LENGTH_MAX
from gpuledger.agent.plugin.share_units import preferred_shares, share_lists, type_of
from gpuledger.api.sharing import SharingNames
from gpuledger.events.sharing import NodeDevicesShared, SharedDevice
from support.kubelet_parts import address, card
from support.shares import CORE, RATIO, SPREAD, node_of, shared_gpu, shared_nic, sharing_board

NAMES = SharingNames()


def test_a_hundred_units_per_card_and_resource() -> None:
    lists = share_lists(sharing_board(8, shared_nic(0)).state, NAMES)
    assert {name: len(units) for name, units in lists.items()} == {
        CORE: 800,
        RATIO: 800,
        SPREAD: 800,
        "kooperator/rdma": 100,
    }
    for units in lists.values():
        ids = [one.unit.id for one in units]
        assert len(set(ids)) == len(ids)
        assert all(len(each) <= ID_LENGTH_MAX for each in ids)
        assert all(one.healthy and one.numa_node is None for one in units)
    assert lists[CORE][100].unit == ("GPU-1::0", "GPU-1", address(1))


def test_a_long_id_leaves_room_for_the_number() -> None:
    device = SharedDevice(type="fpga", minor=0, id="F" * 80, healthy=True, resources={"fpga": 100})
    board = Board()
    board.put(shared=node_of(device))
    (units,) = share_lists(board.state, SharingNames("example.com")).values()
    assert len({one.unit.id for one in units}) == 100
    assert max(len(one.unit.id) for one in units) <= ID_LENGTH_MAX


@pytest.mark.parametrize(
    "shared",
    [
        pytest.param(None, id="nothing decided"),
        pytest.param(NodeDevicesShared(enabled=False, devices=(shared_gpu(0),)), id="not labelled any more"),
        pytest.param(node_of(), id="no devices"),
        pytest.param(
            node_of(SharedDevice(type="gpu", minor=0, healthy=True, resources={"gpu-core": 100})), id="without a UUID"
        ),
    ],
)
def test_no_units(shared: NodeDevicesShared | None) -> None:
    board = sharing_board(1)
    board.put(shared=shared)
    assert share_lists(board.state, NAMES) == {}


def healthy_cards(board: Board) -> set[str]:
    return {one.unit.uuid for one in share_lists(board.state, NAMES)[CORE] if one.healthy}


def test_health_is_what_both_the_ledger_and_the_agent_say() -> None:
    board = sharing_board(3)
    board.put(shared=node_of(shared_gpu(0, healthy=False), shared_gpu(1), shared_gpu(2)))
    assert healthy_cards(board) == {"GPU-1", "GPU-2"}
    board.put(unfit={address(1): "XID 79"})
    assert healthy_cards(board) == {"GPU-2"}
    board.put(survey=board.state.survey._replace(cards=(card(0), card(1))) if board.state.survey else None)
    assert healthy_cards(board) == set(), "the third card is gone"
    board.put(unfit=None)
    assert healthy_cards(board) == set(), "nobody has looked yet"


@pytest.mark.parametrize(
    ("devices", "must_include", "size", "expected"),
    [
        (["GPU-1"], [], 2, ("GPU-1::0", "GPU-1::1")),
        (["GPU-0", "GPU-1"], [], 4, ("GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1")),
        (["GPU-1"], ["GPU-1::3"], 2, ("GPU-1::3", "GPU-1::0")),
        (["GPU-1"], [], 5, ("GPU-1::0", "GPU-1::1", "GPU-1::2", "GPU-1::3", "GPU-0::0")),
        ([], [], 1, ("GPU-0::0",)),
        (["GPU-1"], [], 0, ()),
    ],
)
def test_preferred(devices: list[str], must_include: list[str], size: int, expected: tuple[str, ...]) -> None:
    available = [f"GPU-{card}::{number}" for card in range(2) for number in range(4)]
    assert preferred_shares(devices, available, must_include, size) == expected


def test_the_tenth_unit_comes_after_the_ninth() -> None:
    available = [f"GPU-0::{number}" for number in range(12)]
    assert preferred_shares(["GPU-0"], available, [], 11)[-2:] == ("GPU-0::9", "GPU-0::10")


def test_the_type_of_a_resource() -> None:
    assert [type_of(each, {"gpu", "rdma"}) for each in ("gpu-core", "gpu.shared", "rdma")] == ["gpu", "gpu", "rdma"]


def test_any_other_type_has_a_hundred_units_per_device() -> None:
    fpga = shared_nic(0).model_copy(update={"type": "fpga", "id": "f0", "resources": {"fpga": 100}})
    units = share_lists(sharing_board(1, fpga).state, NAMES)["kooperator/fpga"]
    assert [one.unit.id for one in units] == [f"f0::{number}" for number in range(100)]
    assert all(one.healthy for one in units)
    assert type_of("fpga", {"gpu", "fpga"}) == "fpga"
