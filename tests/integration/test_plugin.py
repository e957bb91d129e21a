"""The device plugin with a kubelet that behaves as a real one, in whatever order both come and go."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from gpuledger.agent.board import Board, ResourceOffer
from gpuledger.agent.hardware.api import Survey
from gpuledger.agent.kubelet.sockets import socket_name, socket_path
from gpuledger.agent.plugin.allocate import DeviceInjection
from gpuledger.agent.plugin.part import DevicePlugin, PluginSettings
from gpuledger.agent.plugin.resource import AWAY, POLL_PERIOD_S, STREAM_END_POLLS
from support.kubelet import GRACE_S, FakeKubelet, a_kubelet
from support.kubelet_parts import address, board_of, card, hasty, hasty_once, knows, running, slices, whole_cards
from support.waiting import eventually

LOCAL = "gpu.deckhouse.io/a"
CLUSTER = "cluster.gpu.deckhouse.io/b"


@pytest.fixture
async def kubelet(root: Path) -> AsyncIterator[FakeKubelet]:
    async with a_kubelet(root) as one:
        yield one


def plugin_of(kubelet: FakeKubelet, board: Board, **more: object) -> DevicePlugin:
    return DevicePlugin(board, PluginSettings(kubelet.plugins, **more), sleep=hasty)  # type: ignore[arg-type]


def sockets(kubelet: FakeKubelet) -> set[str]:
    return {path.name for path in kubelet.plugins.iterdir()} - {"kubelet.sock"}


async def test_each_resource_is_registered_by_its_own_socket(kubelet: FakeKubelet) -> None:
    board = board_of(ResourceOffer(LOCAL, whole_cards(0, 1)), ResourceOffer(CLUSTER, slices(2, 2)))
    plugin = plugin_of(kubelet, board)
    async with running(plugin):
        await knows(kubelet, LOCAL, "GPU-0", "GPU-1")
        await knows(kubelet, CLUSTER, "GPU-2::0", "GPU-2::1")
        assert sockets(kubelet) == {socket_name(LOCAL), socket_name(CLUSTER)}
        recorded = {(one.version, one.endpoint, one.resource_name) for one in kubelet.registrations}
        assert recorded == {("v1beta1", socket_name(name), name) for name in (LOCAL, CLUSTER)}
        assert all(one.options.get_preferred_allocation_available for one in kubelet.registrations)

        async def answered() -> bool:
            return plugin.counts.registrations == 2

        await eventually(answered)
        assert plugin.describe()[LOCAL] == {
            "units": 2,
            "healthy": 2,
            "registered": True,
            "watched": True,
            "trouble": None,
        }
    assert sockets(kubelet) == set(), "a clean end leaves none behind"


async def test_units_that_come_and_go_are_reported_without_registering_again(kubelet: FakeKubelet) -> None:
    board = board_of(ResourceOffer(LOCAL, whole_cards(0)))
    async with running(plugin_of(kubelet, board)):
        await knows(kubelet, LOCAL, "GPU-0")
        board.put(offers=(ResourceOffer(LOCAL, whole_cards(0, 1, 2)),))
        await knows(kubelet, LOCAL, "GPU-0", "GPU-1", "GPU-2")
        board.put(offers=(ResourceOffer(LOCAL, whole_cards(2)),))
        await knows(kubelet, LOCAL, "GPU-2")
        assert len(kubelet.registrations) == 1


async def test_a_card_turns_unhealthy_and_recovers(kubelet: FakeKubelet) -> None:
    board = board_of(ResourceOffer(LOCAL, slices(0, 2) + whole_cards(1)))
    async with running(plugin_of(kubelet, board)):
        await knows(kubelet, LOCAL, "GPU-0::0", "GPU-0::1", "GPU-1")
        board.put(unfit={address(0): "XID 79"})
        await knows(kubelet, LOCAL, "GPU-1", unhealthy=("GPU-0::0", "GPU-0::1"))
        board.put(unfit={})
        await knows(kubelet, LOCAL, "GPU-0::0", "GPU-0::1", "GPU-1")


async def test_numa_nodes_are_reported_where_they_are_known(kubelet: FakeKubelet) -> None:
    board = board_of(ResourceOffer(LOCAL, whole_cards(0, 1)), cards=[card(0, numa_node=1), card(1, numa_node=-1)])
    async with running(plugin_of(kubelet, board)):
        await knows(kubelet, LOCAL, "GPU-0", "GPU-1")
        devices = kubelet.resources[LOCAL].devices
        assert [node.ID for node in devices["GPU-0"].topology.nodes] == [1]
        assert not devices["GPU-1"].HasField("topology")
        board.put(survey=Survey((card(0, numa_node=0), card(1))))

        async def moved() -> bool:
            return [node.ID for node in kubelet.resources[LOCAL].devices["GPU-0"].topology.nodes] == [0]

        await eventually(moved)


async def test_containers_get_cards_by_uuid(kubelet: FakeKubelet) -> None:
    board, recorded = board_of(ResourceOffer(LOCAL, whole_cards(0, 1, 2))), list[tuple[str, frozenset[str]]]()
    settings = PluginSettings(kubelet.plugins)
    plugin = DevicePlugin(board, settings, on_allocated=lambda *call: recorded.append(call), sleep=hasty)
    async with running(plugin):
        await knows(kubelet, LOCAL, "GPU-0", "GPU-1", "GPU-2")
        first = await kubelet.allocate(LOCAL, 2, "pod", "one")
        second = await kubelet.allocate(LOCAL, 1, "pod", "two")
        assert dict(first.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"}
        assert dict(second.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-2"}
        assert plugin.counts.allocations == 2
        assert recorded == [(LOCAL, frozenset({"GPU-0", "GPU-1"})), (LOCAL, frozenset({"GPU-2"}))]


async def test_slices_come_from_different_cards_first(kubelet: FakeKubelet) -> None:
    board = board_of(ResourceOffer(LOCAL, slices(0, 2) + slices(1, 2)))
    async with running(plugin_of(kubelet, board)):
        await knows(kubelet, LOCAL, *(unit.id for unit in slices(0, 2) + slices(1, 2)))
        got = [dict((await kubelet.allocate(LOCAL, 1, f"p{n}")).envs) for n in range(2)]
        assert [one["NVIDIA_VISIBLE_DEVICES"] for one in got] == ["GPU-0", "GPU-1"]
        both = await kubelet.allocate(LOCAL, 2, "p2")
        assert both.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"


async def test_a_container_goes_on_with_what_its_init_container_had(kubelet: FakeKubelet) -> None:
    cards = [card(index, nvlinks=(address(index ^ 1),) * 18) for index in range(4)]
    board = board_of(ResourceOffer(LOCAL, whole_cards(0, 1, 2, 3)), cards=cards)
    async with running(plugin_of(kubelet, board)):
        await knows(kubelet, LOCAL, "GPU-0", "GPU-1", "GPU-2", "GPU-3")
        await kubelet.allocate(LOCAL, 1, "other")
        init = await kubelet.allocate(LOCAL, 1, "pod", "init")
        assert init.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
        kubelet.release("other")
        same = await kubelet.allocate(LOCAL, 1, "pod", "same", after="init")
        assert same.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-1", "though another container has it already"
        two = await kubelet.allocate(LOCAL, 2, "pod", after="init")
        assert set(two.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == {"GPU-0", "GPU-1"}, "the card that is linked to it"
        assert kubelet.complaints == []


async def test_cdi_names_are_handed_over_once_a_specification_names_them(kubelet: FakeKubelet, root: Path) -> None:
    cdi = root / "cdi"
    plugin = plugin_of(
        kubelet, board_of(ResourceOffer(LOCAL, whole_cards(0))), injection=DeviceInjection("both"), cdi_folders=(cdi,)
    )
    async with running(plugin):
        await knows(kubelet, LOCAL, "GPU-0")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await kubelet.allocate(LOCAL, 1, "pod")
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "nvidia.com/gpu=GPU-0" in (refused.value.details() or "")
        assert "nvidia-ctk cdi generate" in (refused.value.details() or "")
        cdi.mkdir()
        (cdi / "nvidia.yaml").write_text("cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n- name: GPU-0\n")
        answer = await kubelet.allocate(LOCAL, 1, "pod")
        assert [one.name for one in answer.cdi_devices] == ["nvidia.com/gpu=GPU-0"]
        assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}
        assert plugin.counts.errors == 1


async def test_a_kubelet_that_restarts_is_registered_with_again(kubelet: FakeKubelet) -> None:
    board = board_of(ResourceOffer(LOCAL, whole_cards(0)), ResourceOffer(CLUSTER, whole_cards(1)))
    async with running(plugin_of(kubelet, board)):
        for _ in range(3):
            await knows(kubelet, LOCAL, "GPU-0")
            await knows(kubelet, CLUSTER, "GPU-1")
            await kubelet.restart()
        await knows(kubelet, LOCAL, "GPU-0")
        await knows(kubelet, CLUSTER, "GPU-1")
        assert Counter(one.resource_name for one in kubelet.registrations) == {LOCAL: 4, CLUSTER: 4}
        assert (await kubelet.allocate(LOCAL, 1, "pod")).envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"


async def test_a_kubelet_that_is_away_is_waited_for(root: Path) -> None:
    kubelet = FakeKubelet(root)
    plugin = plugin_of(kubelet, board_of(ResourceOffer(LOCAL, whole_cards(0))))
    async with running(plugin):

        async def recorded() -> bool:
            return LOCAL in plugin.describe() and plugin.describe()[LOCAL]["trouble"] == AWAY  # type: ignore[index]

        await eventually(recorded)
        await kubelet.start()
        await knows(kubelet, LOCAL, "GPU-0")
        await kubelet.stop()
        kubelet.advance(GRACE_S)
        assert kubelet.resources == {}, "nobody renewed it"
        await kubelet.start()
        await knows(kubelet, LOCAL, "GPU-0")
        await kubelet.stop()


async def test_a_removed_socket_is_made_again(kubelet: FakeKubelet) -> None:
    async with running(plugin_of(kubelet, board_of(ResourceOffer(LOCAL, whole_cards(0))))):
        await knows(kubelet, LOCAL, "GPU-0")
        (kubelet.plugins / socket_name(LOCAL)).unlink()

        async def again() -> bool:
            return len(kubelet.registrations) >= 2 and kubelet.health(LOCAL) == {"GPU-0": "Healthy"}

        await eventually(again)
        assert sockets(kubelet) == {socket_name(LOCAL)}


async def test_a_stream_that_the_kubelet_ends_is_no_restart(kubelet: FakeKubelet) -> None:
    plugin = plugin_of(kubelet, board_of(ResourceOffer(LOCAL, whole_cards(0))))
    async with running(plugin):
        await knows(kubelet, LOCAL, "GPU-0")
        before = (kubelet.plugins / socket_name(LOCAL)).stat().st_ino
        await kubelet.end_stream(LOCAL)
        assert kubelet.health(LOCAL) == {"GPU-0": "Unhealthy"}

        async def unwatched() -> bool:
            return plugin.describe()[LOCAL]["watched"] is False  # type: ignore[index]

        await eventually(unwatched)
        await knows(kubelet, LOCAL, "GPU-0")
        assert len(kubelet.registrations) == 2
        assert (kubelet.plugins / socket_name(LOCAL)).stat().st_ino == before


async def test_a_kubelet_that_ends_the_wrong_stream_is_reported_again_soon(kubelet: FakeKubelet) -> None:
    """It takes the end of the stream before for that of the one which it has just opened."""
    looks = 0

    async def sleep(seconds: float) -> None:
        nonlocal looks
        looks += seconds == POLL_PERIOD_S
        await hasty(seconds)

    board = board_of(ResourceOffer(LOCAL, whole_cards(0)))
    plugin = DevicePlugin(board, PluginSettings(kubelet.plugins), sleep=sleep)
    async with running(plugin):
        await knows(kubelet, LOCAL, "GPU-0")
        kubelet.notices.clear()
        (kubelet.plugins / socket_name(LOCAL)).unlink()

        async def again() -> bool:
            return len(kubelet.registrations) == 2 and plugin.describe()[LOCAL]["watched"] is True  # type: ignore[index]

        await eventually(again)
        kubelet.notices.set()
        before = looks

        async def third() -> bool:
            return len(kubelet.registrations) == 3

        await eventually(third)
        await knows(kubelet, LOCAL, "GPU-0")
        assert looks - before < 40, "of two loops; pods that a kubelet finds no healthy device for fail for good"


async def test_a_pool_that_leaves_is_withdrawn(kubelet: FakeKubelet) -> None:
    board = board_of(ResourceOffer(LOCAL, whole_cards(0)), ResourceOffer(CLUSTER, whole_cards(1)))
    noticed = asyncio.Event()
    plugin = DevicePlugin(board, PluginSettings(kubelet.plugins), sleep=hasty_once(noticed))
    async with running(plugin):
        await knows(kubelet, LOCAL, "GPU-0")
        await knows(kubelet, CLUSTER, "GPU-1")
        board.put(offers=(ResourceOffer(CLUSTER, whole_cards(1)),))
        await knows(kubelet, LOCAL)  # an empty list comes before the end
        noticed.set()

        async def withdrawn() -> bool:
            return sockets(kubelet) == {socket_name(CLUSTER)} and LOCAL not in plugin.describe()

        await eventually(withdrawn)
        assert kubelet.health(CLUSTER) == {"GPU-1": "Healthy"}
        board.put(offers=(ResourceOffer(LOCAL, whole_cards(2)), ResourceOffer(CLUSTER, whole_cards(1))))
        await knows(kubelet, LOCAL, "GPU-2")


async def test_a_pool_that_returns_at_once_is_not_withdrawn(kubelet: FakeKubelet) -> None:
    board, noticed = board_of(ResourceOffer(LOCAL, whole_cards(0))), asyncio.Event()
    async with running(DevicePlugin(board, PluginSettings(kubelet.plugins), sleep=hasty_once(noticed))):
        await knows(kubelet, LOCAL, "GPU-0")
        board.put(offers=())
        await knows(kubelet, LOCAL)
        board.put(offers=(ResourceOffer(LOCAL, whole_cards(0)),))
        noticed.set()
        await knows(kubelet, LOCAL, "GPU-0")
        assert len(kubelet.registrations) == 1


@pytest.mark.parametrize("ends", ["withdrawn", "removed"])
async def test_a_kubelet_has_time_to_see_the_old_stream_off(kubelet: FakeKubelet, ends: str) -> None:
    """Once it does, by the resource's name, a plugin that registered meanwhile is stopped, and its stream lives on."""
    pauses: list[float] = []

    def is_watched() -> bool:
        return plugin.describe().get(LOCAL, {}).get("watched", False)  # type: ignore[attr-defined, no-any-return]

    async def ended() -> bool:
        return len(kubelet.registrations) > 1 or kubelet.resources[LOCAL].lost_at is not None

    async def noticed() -> bool:
        return is_watched() or LOCAL not in kubelet.resources or await ended()

    async def sleep(seconds: float) -> None:
        await hasty(seconds)
        if not is_watched() and len(kubelet.registrations) == 1:
            pauses.append(seconds)
        await eventually(noticed)

    board = board_of(ResourceOffer(LOCAL, whole_cards(0)))
    plugin = DevicePlugin(board, PluginSettings(kubelet.plugins), sleep=sleep)
    async with running(plugin):
        await knows(kubelet, LOCAL, "GPU-0")
        pauses.clear()
        if ends == "removed":
            (kubelet.plugins / socket_name(LOCAL)).unlink()
        else:
            board.put(offers=())
        await eventually(ended)
        board.put(offers=(ResourceOffer(LOCAL, whole_cards(1)),))
        await knows(kubelet, LOCAL, "GPU-1")
        assert len(kubelet.registrations) == 2
        assert sum(pauses) > STREAM_END_POLLS * POLL_PERIOD_S, "of two loops"


async def test_sockets_of_an_agent_that_was_killed_are_cleaned_up(kubelet: FakeKubelet) -> None:
    stale, other = kubelet.plugins / socket_name("gpu.deckhouse.io/gone"), kubelet.plugins / "nvidia-gpu.sock"
    own = kubelet.plugins / socket_name(LOCAL)
    for path in (stale, other, own):
        path.touch()
    async with running(plugin_of(kubelet, board_of(ResourceOffer(LOCAL, whole_cards(0))))):
        await knows(kubelet, LOCAL, "GPU-0")
        assert sockets(kubelet) == {own.name, other.name}, "what is not ours by its name stays"


async def test_an_agent_that_restarts_takes_over(kubelet: FakeKubelet) -> None:
    board = board_of(ResourceOffer(LOCAL, whole_cards(0, 1)))
    for _ in range(2):
        async with running(plugin_of(kubelet, board)):
            await knows(kubelet, LOCAL, "GPU-0", "GPU-1")
        await knows(kubelet, LOCAL, unhealthy=("GPU-0", "GPU-1"))


async def test_one_bad_resource_harms_no_other(kubelet: FakeKubelet) -> None:
    bad = "gpu.deckhouse.io/not a name"
    plugin = plugin_of(kubelet, board_of(ResourceOffer(bad, whole_cards(0)), ResourceOffer(LOCAL, whole_cards(1))))
    async with running(plugin):
        await knows(kubelet, LOCAL, "GPU-1")

        async def tried_again() -> bool:
            return plugin.counts.errors >= 3

        await eventually(tried_again)
        described = plugin.describe()[bad]
        assert isinstance(described, dict)
        assert described["registered"] is False
        assert "no name of an extended resource" in described["trouble"]
        assert plugin.trouble == f"{bad}: {described['trouble']}", "as /healthz has it"
        assert len(kubelet.refusals) >= 3
        assert len([one for one in kubelet.registrations if one.resource_name == LOCAL]) == 1


async def test_an_id_that_no_kubelet_takes_is_left_out(kubelet: FakeKubelet) -> None:
    units = (whole_cards(0)[0]._replace(id="x" * 64), *whole_cards(1))
    plugin = plugin_of(kubelet, board_of(ResourceOffer(LOCAL, units)))
    async with running(plugin):
        await knows(kubelet, LOCAL, "GPU-1")
        assert kubelet.complaints == []
        assert plugin.counts.errors == 1


async def test_a_mistake_in_one_resource_harms_no_other(kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {LOCAL}

    def breaking(folder: Path, name: str) -> Path:
        if name in broken:
            raise ZeroDivisionError
        return socket_path(folder, name)

    monkeypatch.setattr("gpuledger.agent.plugin.resource.socket_path", breaking)
    board = board_of(ResourceOffer(LOCAL, whole_cards(0)), ResourceOffer(CLUSTER, whole_cards(1)))
    async with running(plugin_of(kubelet, board)):
        await knows(kubelet, CLUSTER, "GPU-1")
        assert LOCAL not in kubelet.resources
        broken.clear()
        await knows(kubelet, LOCAL, "GPU-0")


async def test_a_slow_reader_gets_the_newest_list(kubelet: FakeKubelet) -> None:
    board = board_of(ResourceOffer(LOCAL, whole_cards(0)))
    async with running(plugin_of(kubelet, board)):
        await knows(kubelet, LOCAL, "GPU-0")
        for index in range(1, 15):
            board.put(offers=(ResourceOffer(LOCAL, whole_cards(index)),))
        await knows(kubelet, LOCAL, "GPU-14")
        assert len(kubelet.resources[LOCAL].lists) == 2, "what was overtaken is never sent"
