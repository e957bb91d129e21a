"""One node's agent, a process of its own, while what it needs is away, full, slow, wrong or dies.

Whatever happens, it serves its kubelet, reports nothing twice, and logs whatever it cannot store.
"""

import asyncio
import resource
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from gpuledger.agent.control import SOCKET
from gpuledger.agent.hardware.simulated_faults import DRIVER_MISSING
from gpuledger.events.device import (
    DeviceErrorsObserved,
    DeviceFailed,
    DevicePoolApplied,
    DevicePoolRefused,
)
from gpuledger.events.node import NodeAgentStarted, NodeDevicesObserved
from gpuledger.local.servers.nats import NatsServer
from support.agent_fast import FAULT
from support.agent_process import NODE, AgentProcess, Place, a_place, desired_devices
from support.edges import confined_server
from support.waiting import eventually

OTHER = "w2"


@pytest.fixture
async def place(fresh_nats: NatsServer) -> AsyncIterator[Place]:
    async with a_place(fresh_nats) as place:
        yield place


# --- The disk is full, or takes nothing at all.


async def test_a_full_disk_is_reported_and_harms_neither_kubelet_nor_ledger(place: Place) -> None:
    await place.use(1)
    pid = _pid(place.agent)
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    card = place.agent.cards()[0]
    await place.agent.inject(f"xid:79@{card}")
    await place.lists(1, healthy=0)
    await place.agent.healthy(durable=False)
    await place.verdicts(card, False)
    await place.recorded_at_least(1, DeviceErrorsObserved)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    await place.agent.inject(f"recover@{card}")
    await place.lists(1)
    await place.agent.healthy(durable=True, disk="ok")
    await place.nothing_is_lost()
    await place.verdicts(card, False, True)
    assert [one.durable for one in await place.recorded(NodeAgentStarted)][:2] == [True, False]
    assert (await place.recorded(NodeAgentStarted))[-1].durable


async def test_a_state_folder_that_takes_nothing_is_reported(place: Place) -> None:
    with _read_only(place.agent.state_dir):
        await place.agent.start(wait=False)
        await place.agent.logs("is up")
        await place.set_desired(*desired_devices(place.agent, 0))
        await place.lists(1)
        await place.agent.healthy(durable=False, ledger="ok", waiting=0)
        assert "events wait in memory, not on disk" in place.agent.output
        assert [one.durable for one in await place.recorded(NodeAgentStarted)] == [False]
        assert await place.agent.stop() == 0


@contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    folder.mkdir()
    mounted = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "ro,size=64k", "none", str(folder)), check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("A file system that may only be read takes rights to mount one.")
    try:
        yield
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)


# --- The kubelet.


async def test_a_kubelet_that_restarts_has_everything_again(place: Place) -> None:
    await place.use(2)
    await place.kubelet.allocate("gpu.deckhouse.io/training", 1, "trainer")
    for _ in range(2):
        await place.kubelet.restart()
        await place.lists(2)
    assert (place.kubelet.refusals, place.kubelet.undialled) == ([], [])
    assert len(await place.recorded(DevicePoolApplied)) == 2


@pytest.mark.parametrize("is_folder_there", [True, False])
async def test_a_kubelet_that_comes_later_is_waited_for(place: Place, *, is_folder_there: bool) -> None:
    await place.kubelet.stop()
    for folder in (place.kubelet.plugins, place.kubelet.pods_socket.parent):
        shutil.rmtree(folder)
        folder.mkdir() if is_folder_there else None
    await place.agent.start()
    await place.set_desired(*desired_devices(place.agent, 0))
    await place.agent.logs("Is a kubelet running")
    status, document = await place.agent.health()
    assert (status, "pod resources" in document["troubles"]) == (200, True)
    for folder in (place.kubelet.plugins, place.kubelet.pods_socket.parent):
        folder.mkdir(exist_ok=True)
    await place.kubelet.start()
    await place.lists(1)
    await place.kubelet.allocate("gpu.deckhouse.io/training", 1, "trainer")
    await place.nothing_is_lost()


# --- The driver.


async def test_a_driver_that_comes_later_is_waited_for(place: Place) -> None:
    place.agent.environ[FAULT] = DRIVER_MISSING
    await place.agent.start()
    await place.set_desired(*desired_devices(place.agent, 0))
    (seen, *_) = await place.recorded_at_least(1, NodeDevicesObserved)
    assert (seen.driver_missing, {card.uuid for card in seen.cards}) == (True, {None})
    (refused, *_) = await place.recorded_at_least(1, DevicePoolRefused)
    assert refused.reason == "DriverMissing"
    await place.agent.inject("recover")
    await place.lists(1)
    assert await place.recorded_at_least(1, DevicePoolApplied)

    async def is_seen() -> bool:
        return not (await place.recorded(NodeDevicesObserved))[-1].driver_missing

    await eventually(is_seen)
    await place.verdicts(place.agent.cards()[0])
    await place.nothing_is_lost()


async def test_a_driver_that_goes_and_comes_back_leaves_the_pool_its_cards(place: Place) -> None:
    await place.use(2)
    await place.agent.inject(DRIVER_MISSING)

    async def is_reported() -> bool:
        return bool((await place.recorded(NodeDevicesObserved))[-1].driver_missing)

    await eventually(is_reported)
    assert len(place.kubelet.health("gpu.deckhouse.io/training")) == 2
    await place.agent.inject("recover")
    await place.lists(2)
    await place.nothing_is_lost()
    assert not await place.recorded(DevicePoolRefused)


async def test_a_driver_that_hangs_is_reported_and_the_kubelet_keeps_its_list(place: Place) -> None:
    await place.use(2)
    pid = _pid(place.agent)
    lists = len(place.kubelet.resources["gpu.deckhouse.io/training"].lists)
    await place.agent.inject("hang")

    async def is_reported() -> bool:
        status, document = await place.agent.health()
        troubles = [document["troubles"].get(name, "") for name in ("discovery", "health")]
        return status == 200 and all("the driver has not come back" in one for one in troubles)

    await eventually(is_reported)
    await place.lists(2)
    assert len(place.kubelet.resources["gpu.deckhouse.io/training"].lists) == lists
    await place.agent.inject("recover")
    await place.agent.logs("a part works again")
    await place.agent.inject("xid:79@0")
    await place.lists(2, healthy=1)
    assert (_pid(place.agent), place.agent.running) == (pid, True)
    await place.nothing_is_lost()


async def test_a_driver_that_refuses_to_report_errors_is_a_trouble_until_it_does(place: Place) -> None:
    await place.use(1)
    await place.agent.inject("events-refused@1")

    async def is_reported(*, refused: bool) -> bool:
        status, document = await place.agent.health()
        return status == 200 and ("do not reach the agent" in document["troubles"].get("health", "")) == refused

    await eventually(partial(is_reported, refused=True))
    await place.agent.inject("recover")
    await eventually(partial(is_reported, refused=False))
    await place.agent.inject("xid:31@1")
    await place.recorded_at_least(1, DeviceErrorsObserved)


async def test_an_agent_whose_driver_hangs_ends_when_it_is_stopped(place: Place) -> None:
    await place.use(1)
    await place.agent.inject("hang")
    await place.agent.logs("has not come back from an earlier call")
    assert await place.agent.stop() == 0


# --- Beginning and end.


async def test_a_second_agent_on_the_folder_is_refused(place: Place) -> None:
    await place.use(1)
    second = AgentProcess(place.root, place.nats.url)
    await second.start(wait=False)
    assert await second.ended() == 5
    (line,) = second.output.splitlines()
    assert line.startswith("Error: ")
    assert str(place.agent.state_dir) in line
    await place.lists(1)
    await place.agent.inject("xid:79@0")
    await place.lists(1, healthy=0)


async def test_the_end_is_clean_and_leaves_no_socket(place: Place) -> None:
    place.agent.module = "gpuledger.agent"
    await place.use(1)
    assert await place.agent.stop() == 0
    assert place.agent.output.splitlines()[-1] == "Stopped."
    assert not (place.agent.state_dir / SOCKET).exists()
    assert [path.name for path in place.kubelet.plugins.iterdir()] == ["kubelet.sock"]
    await place.agent.start()
    await place.lists(1)
    await place.drained()
    assert [one.clean for one in await place.recorded(NodeAgentStarted)] == [False, True]


async def test_the_end_does_not_wait_for_a_bus_that_is_away(place: Place) -> None:
    await place.use(1)
    place.nats.kill()
    await place.agent.inject("xid:119@0")
    await place.lists(1, healthy=0)
    assert await place.agent.stop() == 0
    await asyncio.to_thread(place.nats.start)
    await place.agent.start()
    await place.nothing_is_lost()
    await place.verdicts(place.agent.cards()[0], False)


@pytest.mark.parametrize(
    ("user", "password", "message"),
    [(NODE, "wrong", "uthorization"), (OTHER, "agent", "does not let us")],
    ids=["a wrong password", "another node's credentials"],
)
async def test_a_refusal_of_the_server_is_reported_and_ends_nothing(user: str, password: str, message: str) -> None:
    with confined_server("apart", [NODE, OTHER]) as nats:
        good = nats.agent_url(NODE)
        async with a_place(nats, url=good) as place:
            await place.use(1)
            assert await place.agent.stop() == 0
            place.agent.environ["NATS_URL"] = nats.agent_url(user).replace(":agent@", f":{password}@")
            await place.agent.start()
            await place.lists(1)
            await place.agent.inject("xid:79@0")
            await place.lists(1, healthy=0)
            await place.agent.logs(message)

            async def is_reported() -> bool:
                status, document = await place.agent.health()
                return status == 200 and message in document["ledger"] and document["waiting"] > 0

            await eventually(is_reported)
            assert await place.agent.stop() == 0
            place.agent.environ["NATS_URL"] = good
            await place.agent.start()
            await place.nothing_is_lost()


# --- Errors that come fast.


async def test_ten_errors_of_a_kind_are_reported_together(place: Place) -> None:
    await place.use(1)
    for _ in range(10):
        await place.agent.inject("xid:31@0")

    async def are_recorded() -> bool:
        counts: list[int] = [one.count for one in await place.recorded(DeviceErrorsObserved)]
        return sum(counts) == 10

    await eventually(are_recorded)
    assert len(await place.recorded(DeviceErrorsObserved)) < 5
    assert {one.cause for one in await place.recorded(DeviceErrorsObserved)} == {"application"}
    await place.lists(1)


async def test_a_card_that_fails_without_end_floods_nobody(place: Place) -> None:
    await place.use(2)
    for _ in range(1_000):
        await place.agent.inject("xid:95@0")
    await place.agent.inject("xid:46@1")
    await place.lists(2, healthy=0)

    async def are_recorded() -> bool:
        recorded = await place.recorded(DeviceErrorsObserved, DeviceFailed)
        counts: list[int] = [getattr(one, "count", 1) for one in recorded if one.kind == "XID 95"]
        return sum(counts) == 1_000

    await eventually(are_recorded)
    recorded = await place.recorded(DeviceErrorsObserved, DeviceFailed)
    assert len(recorded) < 50
    for card in place.agent.cards():
        await place.verdicts(card, False)
    await place.nothing_is_lost()


def _pid(agent: AgentProcess) -> int:
    assert agent.process is not None, "it was started"
    return agent.process.pid
