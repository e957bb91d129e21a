"""The agent records what a runtime proxy leaves: once each, in order, and not what nobody may leave."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

from gpuledger.agent.board import Board
from gpuledger.agent.part import AgentFact
from gpuledger.agent.runtime_facts import RuntimeFacts
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.machine_config import NodeConfigReported
from gpuledger.events.runtime import NodeContainerDevicesRefused
from gpuledger.events.shares import NodeDevicesAllocated, PodShare
from gpuledger.events.sharing import NodeDevicesShared
from gpuledger.runtimefacts.folder import FACTS, FactsFolder, NodeFile, StoredFact
from gpuledger.runtimefacts.types import CONFIG_AGENT, RUNTIME_PROXY, read_node_document
from support.waiting import eventually

AT = datetime(2026, 1, 2, tzinfo=UTC)
_IDS = count()


class Store:
    """A durable store; `room` False takes nothing."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.facts: list[AgentFact] = []
        self.room = True
        self.is_durable = True

    def get(self, name: str) -> bytes | None:
        return self.values.get(name)

    async def put(self, name: str, value: bytes) -> None:
        self.values[name] = value

    def has_room(self, events: int, size: int) -> bool:
        return self.room

    async def record_with(self, facts: Sequence[AgentFact], name: str, value: bytes) -> None:
        self.facts += facts
        self.values[name] = value


def refused(number: int) -> NodeContainerDevicesRefused:
    return NodeContainerDevicesRefused(pod="team/train", uid="u1", container=f"c{number}", reason="InternalError")


def leave(folder: FactsFolder, number: int) -> None:
    payload = refused(number)
    folder.put(StoredFact(payload.TYPE, AT, payload.model_dump(mode="json")), lambda: f"id{next(_IDS)}")


@pytest.fixture
def folder(tmp_path: Path) -> FactsFolder:
    return FactsFolder(tmp_path)


async def nothing(facts: Sequence[AgentFact]) -> None:
    raise AssertionError("it records together with its state")


async def run_until(part: RuntimeFacts, condition: Any) -> None:
    """Run the part until the condition holds."""

    async def holds() -> bool:
        return bool(condition())

    running = asyncio.create_task(part.run(nothing))
    try:
        await eventually(holds)
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_facts_are_recorded_in_order_and_removed(folder: FactsFolder) -> None:
    store = Store()
    for number in range(120):
        leave(folder, number)
    await run_until(RuntimeFacts("w1", store, folder, Board()), lambda: not folder.names())
    assert store.facts == [AgentFact("w1", refused(number), AT) for number in range(120)]


async def test_what_was_recorded_before_a_kill_is_not_recorded_again(folder: FactsFolder) -> None:
    store = Store()
    leave(folder, 0)
    store.values[RUNTIME_PROXY.part] = orjson.dumps(folder.names())
    leave(folder, 1)
    await run_until(RuntimeFacts("w1", store, folder, Board()), lambda: not folder.names())
    assert store.facts == [AgentFact("w1", refused(1), AT)]


async def test_facts_wait_on_disk_while_the_spool_is_full(folder: FactsFolder) -> None:
    store = Store()
    store.room = False
    leave(folder, 0)
    part = RuntimeFacts("w1", store, folder, Board(), sleep=lambda _: asyncio.sleep(0))
    await run_until(part, lambda: part.trouble is not None)
    assert (len(folder.names()), store.facts) == (1, [])
    store.room = True
    await run_until(part, lambda: not folder.names())
    assert (len(store.facts), part.trouble) == (1, None)


async def test_what_no_proxy_may_leave_is_left_out(folder: FactsFolder, tmp_path: Path) -> None:
    store = Store()
    folder.put(StoredFact(NodeHealthReported.TYPE, AT, {"monitor": "m"}), lambda: "x")
    folder.put(StoredFact(NodeContainerDevicesRefused.TYPE, AT, {"pod": 5}), lambda: "y")
    (tmp_path / FACTS / "000000000003-z.json").write_text("{")
    leave(folder, 7)
    await run_until(RuntimeFacts("w1", store, folder, Board()), lambda: not folder.names())
    assert store.facts == [AgentFact("w1", refused(7), AT)]


async def test_a_disk_that_fails_is_a_trouble(tmp_path: Path) -> None:
    (tmp_path / FACTS).write_text("")
    part = RuntimeFacts("w1", Store(), FactsFolder(tmp_path), Board())
    await run_until(part, lambda: part.trouble is not None)
    assert part.trouble is not None
    assert "disk" in part.trouble


async def test_the_proxy_gets_what_the_node_shares(folder: FactsFolder, tmp_path: Path) -> None:
    shared = NodeDevicesShared(model="H100")
    pod = PodShare(uid="u1", namespace="team", pod="train", allocation={})
    board, file = Board(), NodeFile(tmp_path, read_node_document)
    part = RuntimeFacts("w1", Store(), folder, board, sleep=lambda _: asyncio.sleep(0))
    leave(folder, 0)
    await run_until(part, lambda: not folder.names())
    assert file.value() == (None, None), "what is unknown replaces nothing"
    board.put(shared=shared)
    await run_until(part, lambda: file.value() == (shared, NodeDevicesAllocated()))
    board.put(allocated=(pod,))
    await run_until(part, lambda: file.value() == (shared, NodeDevicesAllocated(pods=(pod,))))


async def test_the_facts_of_each_process_are_its_own_and_are_kept_apart(tmp_path: Path) -> None:
    store, folder, proxy = Store(), FactsFolder(tmp_path / "config"), FactsFolder(tmp_path / "proxy")
    reported = NodeConfigReported(state="done", revision="rendered-a-0", current_revision="rendered-a-0")
    folder.put(StoredFact(reported.TYPE, AT, reported.model_dump(mode="json")), lambda: "id")
    leave(folder, 1)
    leave(proxy, 2)
    await run_until(RuntimeFacts("w1", store, folder, source=CONFIG_AGENT), lambda: not folder.names())
    assert [fact.data for fact in store.facts] == [reported]
    await run_until(RuntimeFacts("w1", store, proxy, Board()), lambda: not proxy.names())
    assert [fact.data for fact in store.facts] == [reported, refused(2)]
    assert set(store.values) == {CONFIG_AGENT.part, RUNTIME_PROXY.part}
