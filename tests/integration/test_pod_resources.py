"""The units that containers hold, by a kubelet's lists: what reaches the board and the ledger."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from gpuledger.agent.board import Board, ResourceOffer
from gpuledger.agent.kubelet.pod_resources import STATE_KEY, PodResources
from gpuledger.agent.outbox.outbox import open_outbox
from gpuledger.agent.plugin.part import DevicePlugin, PluginSettings
from gpuledger.events.allocation import AllocatedDevices, AllocationEnded, AllocationObserved
from support.kubelet import FakeKubelet, a_kubelet
from support.kubelet_parts import Listens, Remembers, board_of, hasty, running, short_folder, slices
from support.waiting import eventually

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
POOL = "gpu.deckhouse.io/a"
MAIN = "w1/default/pod/main"


@pytest.fixture
async def kubelet() -> AsyncIterator[FakeKubelet]:
    with short_folder() as root:
        async with a_kubelet(root) as one:
            yield one


@pytest.fixture
def listens() -> Listens:
    return Listens()


def part_of(kubelet: FakeKubelet, board: Board, keep: Remembers) -> PodResources:
    return PodResources("w1", board, keep, clock=lambda: NOON, socket=kubelet.pods_socket, sleep=hasty)


def holds(kubelet: FakeKubelet, pod: str, *ids: str, resource: str = POOL) -> None:
    kubelet.held.setdefault(("default", pod, "main"), {})[resource] = list(ids)


def in_use(board: Board) -> dict[str, set[str]]:
    return {resource: set(ids) for resource, ids in (board.state.in_use or {}).items()}


async def polled(kubelet: FakeKubelet, times: int = 2) -> None:
    """Wait until the kubelet has answered so many more requests for its lists."""
    goal = kubelet.lists_served + times + 1

    async def so() -> bool:
        return kubelet.lists_served >= goal

    await eventually(so)


async def stand(listens: Listens, *subjects: str) -> None:
    async def so() -> bool:
        return set(listens.current) == set(subjects)

    await eventually(so)


async def registered(kubelet: FakeKubelet) -> None:
    """Wait until the kubelet knows both slices of the pool."""

    async def is_listed() -> bool:
        return POOL in kubelet.resources and len(kubelet.resources[POOL].healthy) == 2

    await eventually(is_listed)


async def test_what_containers_have_is_reported_on_change_only(kubelet: FakeKubelet, listens: Listens) -> None:
    board = Board()
    holds(kubelet, "pod", "GPU-1::0", "GPU-0::1")
    holds(kubelet, "other", "nic-1", resource="rdma/hca")
    async with running(part_of(kubelet, board, Remembers()), listens):
        await stand(listens, MAIN)
        await polled(kubelet)
        devices = (AllocatedDevices(resource=POOL, devices=("GPU-0::1", "GPU-1::0")),)
        observed = AllocationObserved(node="w1", namespace="default", pod="pod", container="main", resources=devices)
        assert [(fact.subject, fact.data, fact.time) for fact in listens.facts] == [(MAIN, observed, NOON)]
        assert in_use(board) == {POOL: {"GPU-0::1", "GPU-1::0"}, "rdma/hca": {"nic-1"}}
        assert board.state.allocations == (observed,)
        kubelet.release("pod")
        await stand(listens)
        await polled(kubelet)
        assert not board.state.allocations
        assert isinstance(listens.facts[-1].data, AllocationEnded)
        assert len(listens.facts) == 2
        assert in_use(board) == {"rdma/hca": {"nic-1"}}


async def test_a_kubelet_that_is_away_ends_nothing(kubelet: FakeKubelet, listens: Listens) -> None:
    board, keep = Board(), Remembers()
    part = part_of(kubelet, board, keep)
    holds(kubelet, "pod", "GPU-0")
    async with running(part, listens):
        await stand(listens, MAIN)
        await kubelet.stop()

        async def missed() -> bool:
            return part.errors >= 3

        await eventually(missed)
        assert part.trouble
        assert set(listens.current) == {MAIN}
        assert in_use(board) == {POOL: {"GPU-0"}}
        kubelet.release("pod")
        await kubelet.start()
        await stand(listens)
        assert part.trouble is None


async def test_a_kubelet_that_has_not_read_its_pods_yet_ends_nothing(kubelet: FakeKubelet, listens: Listens) -> None:
    board = Board()
    holds(kubelet, "pod", "GPU-0")
    part = part_of(kubelet, board, Remembers())
    async with running(part, listens):
        await stand(listens, MAIN)
        await kubelet.stop()
        kubelet.hides_pods = True
        looks = part.lists
        await kubelet.start()

        async def looked_again() -> bool:
            return part.lists > looks

        await eventually(looked_again)
        assert in_use(board) == {POOL: {"GPU-0"}}
        assert set(listens.current) == {MAIN}
        kubelet.hides_pods = False
        await polled(kubelet)
        assert len(listens.facts) == 1


async def test_a_kubelet_without_its_api_server_ends_nothing(kubelet: FakeKubelet, listens: Listens) -> None:
    """It serves its list for as long as that lasts, and there are no pods on it."""
    keep, board = Remembers(), Board()
    holds(kubelet, "pod", "GPU-0")
    async with running(part_of(kubelet, board, keep), listens):
        await stand(listens, MAIN)
        kubelet.hides_pods = True
        await kubelet.restart()
        await polled(kubelet, 4)
        assert in_use(board) == {POOL: {"GPU-0"}}
        assert set(listens.current) == {MAIN}
    board = Board()
    async with running(part_of(kubelet, board, keep), listens):
        await polled(kubelet, 4)
        assert board.state.in_use is None, "the ledger knows better than that nothing is in use"
        assert set(listens.current) == {MAIN}
        kubelet.hides_pods = False
        kubelet.release("pod")
        await stand(listens)
        assert in_use(board) == {}


async def test_what_was_just_allocated_is_in_use_though_no_list_has_it(kubelet: FakeKubelet, listens: Listens) -> None:
    board, keep = board_of(ResourceOffer(POOL, slices(0, 2))), Remembers()
    pods = part_of(kubelet, board, keep)
    plugin = DevicePlugin(board, PluginSettings(kubelet.plugins), on_allocated=pods.on_allocated, sleep=hasty)
    async with running(plugin), running(pods, listens):
        await registered(kubelet)
        await polled(kubelet)
        kubelet.refuses_lists = True
        errors = pods.errors
        await kubelet.allocate(POOL, 1, "pod")
        assert in_use(board) == {POOL: {"GPU-0::0"}}, "from the moment on in which the kubelet is told"
        kubelet.release("pod")

        async def missed() -> bool:
            return pods.errors >= errors + 3

        await eventually(missed)
        assert in_use(board) == {POOL: {"GPU-0::0"}}, "nothing else was reported"
        kubelet.refuses_lists = False

        async def free() -> bool:
            return in_use(board) == {}

        await eventually(free)  # the container never came to be


async def test_one_list_without_what_was_just_allocated_frees_nothing(kubelet: FakeKubelet) -> None:
    """The kubelet notes what it allocated only after it was answered, and may be slow to."""
    board = Board()
    part, listens = part_of(kubelet, board, Remembers()), Listens()
    for _ in range(2):
        await part._poll(listens)
    part.on_allocated(POOL, frozenset({"GPU-0"}))
    await part._poll(listens)
    assert in_use(board) == {POOL: {"GPU-0"}}
    await part._poll(listens)
    assert in_use(board) == {}
    assert listens.facts == [], "the ledger has reports on containers"


async def test_an_agent_that_was_away_reports_what_ended_meanwhile(kubelet: FakeKubelet) -> None:
    keep = Remembers()
    holds(kubelet, "pod", "GPU-0")
    holds(kubelet, "stays", "GPU-1")
    listens = Listens()
    async with running(part_of(kubelet, Board(), keep), listens):
        await stand(listens, MAIN, "w1/default/stays/main")
    kubelet.release("pod")
    async with running(part_of(kubelet, Board(), keep), listens):
        await stand(listens, "w1/default/stays/main")
    recorded = [(fact.subject, fact.data.EVENT) for fact in listens.facts[2:]]
    assert recorded == [("w1/default/stays/main", "observed"), (MAIN, "ended")], "all that is, and then what is no more"
    assert orjson.loads(keep.values[STATE_KEY]) == ["w1/default/stays/main"]


async def test_what_is_reported_is_stored_before(kubelet: FakeKubelet) -> None:
    keep = Remembers()
    holds(kubelet, "pod", "GPU-0")
    kept: list[bytes | None] = []

    class Dies(Listens):
        async def __call__(self, facts: object) -> None:
            kept.append(keep.get(STATE_KEY))
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await part_of(kubelet, Board(), keep).run(Dies())
    assert kept == [orjson.dumps([MAIN])]


async def test_more_containers_than_can_be_stored_end_no_agent(kubelet: FakeKubelet, tmp_path: Path) -> None:
    """People name pods, and ten short containers of a pod may share a card: what they do must not stop the agent."""
    pods = [f"{number:03}-{'x' * 249}" for number in range(250)]
    for number, pod in enumerate(pods):
        holds(kubelet, pod, f"GPU-0::{number}")
    async with open_outbox(tmp_path, "w1", version="1", hardware="simulated") as outbox:
        listens, board = Listens(), Board()
        part = PodResources("w1", board, outbox, clock=lambda: NOON, socket=kubelet.pods_socket, sleep=hasty)
        async with running(part, listens):
            await stand(listens, *(f"w1/default/{pod}/main" for pod in pods))
            kubelet.release(pods[-1])
            await stand(listens, *(f"w1/default/{pod}/main" for pod in pods[:-1]))
        kept = orjson.loads(outbox.get(STATE_KEY) or b"")
        assert 150 < len(kept) < 250


async def test_what_was_stored_and_cannot_be_read_is_as_good_as_nothing(kubelet: FakeKubelet, listens: Listens) -> None:
    holds(kubelet, "pod", "GPU-0")
    for value in (b"\xff", b"{}", b"[1]"):
        keep = Remembers()
        keep.values[STATE_KEY] = value
        async with running(part_of(kubelet, Board(), keep), listens):
            await stand(listens, MAIN)
        listens.current.clear()


async def test_an_allocation_is_seen_soon(kubelet: FakeKubelet, listens: Listens) -> None:
    board = board_of(ResourceOffer(POOL, slices(0, 2)))
    pods = part_of(kubelet, board, Remembers())
    plugin = DevicePlugin(board, PluginSettings(kubelet.plugins), on_allocated=pods.on_allocated, sleep=hasty)
    async with running(plugin), running(pods, listens):
        await registered(kubelet)
        await kubelet.allocate(POOL, 2, "pod")
        await stand(listens, MAIN)
        assert in_use(board) == {POOL: {"GPU-0::0", "GPU-0::1"}}


async def test_soon_is_much_less_than_a_period() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    with short_folder() as root:
        part = PodResources("w1", Board(), Remembers(), clock=lambda: NOON, socket=root / "none", sleep=sleep)
        await part._pause()
        assert sum(pauses) == 10
        pauses.clear()
        part.on_allocated(POOL, frozenset({"GPU-0"}))
        await part._pause()
        assert sum(pauses) == 2
