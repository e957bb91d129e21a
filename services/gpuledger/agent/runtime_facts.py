"""Runtime facts: the part that records what another process of the node left for the agent, and removes it.

The runtime proxy and the agent of machine configuration work while this agent is away, so their facts wait as files
(`gpuledger.runtimefacts.folder`), for each process in a folder of its own. A fact is recorded once: the files of a
batch are named in the same transaction as its facts, and removed after it.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import orjson
import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.part import AgentFact, BasePart, DurableStore, Recorder
from gpuledger.events.errors import EventError
from gpuledger.events.registry import registry
from gpuledger.events.shares import NodeDevicesAllocated
from gpuledger.runtime.clock import Sleep
from gpuledger.runtimefacts.errors import FactsFolderError, UnreadableFactError
from gpuledger.runtimefacts.folder import FactsFolder
from gpuledger.runtimefacts.types import RUNTIME_PROXY, FactSource, node_document

POLL_PERIOD_S: Final = 1.0
STUCK_AFTER_S: Final = 60.0
BATCH_MAX: Final = 50

log = structlog.get_logger("gpuledger.agent")


class RuntimeFacts(BasePart):
    """Records the facts of a process; see `gpuledger.agent.part.Part`.

    With a `board`, it leaves the node's devices in the folder as well.
    """

    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        node: str,
        store: DurableStore,
        folder: FactsFolder,
        board: Board | None = None,
        source: FactSource = RUNTIME_PROXY,
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._node = node
        self._store = store
        self._folder = folder
        self._board = board
        self._source = source
        self.name = source.part
        self._sleep = sleep
        self._written: object = None

    async def run(self, record: Recorder) -> None:  # noqa: ARG002 - it records together with its state
        """Poll until cancelled."""
        recorded = orjson.loads(self._store.get(self.name) or b"[]")
        while True:
            is_idle = True
            try:
                await asyncio.to_thread(self._folder.remove, recorded)
                recorded = await self._take()
                await self._leave_lists()
                is_idle = not recorded
            except FactsFolderError as error:
                self.set_trouble(str(error))
            self.alive_at = asyncio.get_running_loop().time()
            if is_idle:
                await self._sleep(POLL_PERIOD_S)

    async def _take(self) -> list[str]:
        """Record the oldest facts; returns the names of their files, which may go now."""
        names = (await asyncio.to_thread(self._folder.names))[:BATCH_MAX]
        if not names:
            self.set_trouble(None)
            return []
        facts = await asyncio.to_thread(self._read, names)
        size = sum(len(one.data.model_dump_json()) for one in facts)
        if not (self._store.is_durable and self._store.has_room(len(facts), size)):
            self.set_trouble(f"The agent's spool takes no more events; facts of {self._source.name} wait on the disk.")
            return []
        await self._store.record_with(facts, self.name, orjson.dumps(names))
        self.set_trouble(None)
        return names

    def _read(self, names: Sequence[str]) -> list[AgentFact]:
        """The facts in the files; one that is none is logged, and goes with the others."""
        facts: list[AgentFact] = []
        for name in names:
            try:
                stored = self._folder.read(name)
                if stored.type not in self._source.types:
                    raise UnreadableFactError(
                        f"{name} is of the type {stored.type!r}, which {self._source.name} has not."
                    )
                facts.append(AgentFact(self._node, registry.decode(stored.type, stored.data), stored.time))
            except (UnreadableFactError, EventError) as error:
                log.warning("a fact is left out", source=self._source.name, file=name, reason=str(error))
        return facts

    async def _leave_lists(self) -> None:
        """Leave what the node shares for the process, once that is there and whenever it changes."""
        if self._board is None:
            return
        shared, pods = self._board.state.shared, self._board.state.allocated
        if shared is not None and (shared, pods) != self._written:
            document = node_document(shared, NodeDevicesAllocated(pods=pods))
            await asyncio.to_thread(self._folder.write_node, document)
            self._written = (shared, pods)
