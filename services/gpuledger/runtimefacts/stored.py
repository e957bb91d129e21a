"""Leaves the facts of a process of the node for the agent, which records them when it is there."""

import asyncio
from typing import Final

import structlog

from gpuledger.events.payload import Payload
from gpuledger.events.publishing import DropClass
from gpuledger.runtime.clock import Clock, NewId
from gpuledger.runtimefacts.errors import FactsFolderError
from gpuledger.runtimefacts.folder import FactsFolder, StoredFact

WRITES_AT_ONCE_MAX: Final = 1
"""Numbers of files grow one by one."""

log = structlog.get_logger("gpuledger.runtimefacts")


class StoredFacts:
    """Facts on the node's disk; a full disk costs facts and stops nothing else."""

    def __init__(self, folder: FactsFolder, *, clock: Clock, new_id: NewId) -> None:
        self._folder = folder
        self._clock = clock
        self._new_id = new_id
        self._turn = asyncio.Semaphore(WRITES_AT_ONCE_MAX)
        self.stored = 0
        self.dropped = 0
        self.trouble: str | None = None

    async def record(self, payload: Payload) -> None:
        """Keep the fact for the agent."""
        fact = StoredFact(payload.TYPE, self._clock(), payload.model_dump(mode="json", exclude_defaults=True))
        replaces = payload.PUBLISH_RULE.drop_class is DropClass.REPEATED
        async with self._turn:
            try:
                dropped = await asyncio.to_thread(self._folder.put, fact, self._new_id, replaces=replaces)
            except FactsFolderError as error:
                self.dropped += 1
                self._set_trouble(str(error))
                return
        self.stored += 1
        self.dropped += dropped
        self._set_trouble(None)

    def _set_trouble(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self.trouble:
            log.warning("a fact is lost", reason=trouble)
        self.trouble = trouble
