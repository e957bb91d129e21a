"""All watchers of an instance, side by side, and the one thing that one of them has to know from another.

Which label says that a node is managed is a setting, so the Nodes are listed anew whenever the ledger has another one.
Nothing here may talk to a server itself.
"""

import asyncio
from contextlib import suppress
from typing import Final

from gpuledger.edge.watchers import metrics
from gpuledger.edge.watchers.journal import Book
from gpuledger.edge.watchers.resources import (
    claims,
    components,
    deviceclasses,
    gpudevices,
    gpupools,
    moduleconfig,
    namespaces,
    nodefeatures,
    nodelabels,
    nodes,
    pods,
    slices,
    taintrules,
)
from gpuledger.edge.watchers.watcher import Surroundings, Watcher
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.api import Ledger
from gpuledger.runtime.clock import NewId
from gpuledger.runtime.tasks import run_until_one_ends

UNRELATED: Final = (
    nodefeatures.KIND,
    gpudevices.KIND,
    nodelabels.KIND,
    slices.KIND,
    claims.KIND,
    deviceclasses.KIND,
    taintrules.KIND,
    gpupools.KIND,
    gpupools.CLUSTER_KIND,
    pods.KIND,
    namespaces.KIND,
)
"""Kinds that are watched without a look at any other."""


class Watching:
    """All watchers of an instance; what they read of the ledger is kept from one turn to the next."""

    def __init__(self, around: Surroundings, ledger: Ledger, new_id: NewId) -> None:
        self._around = around
        self._ledger = ledger
        self._new_id = new_id
        self._key = ManagedKey()
        self._settings = Book(ledger, moduleconfig.KIND, new_id, self._key.listen)
        self._nodes = Book(ledger, nodes.kind(self._key.value), new_id)
        prepared = components.kind(around.settings.components_namespace)
        self._unrelated = [(kind, Book(ledger, kind, new_id)) for kind in (*UNRELATED, prepared)]
        self._turns = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        self._turns += 1
        settings = Watcher(moduleconfig.KIND, self._settings, self._around)
        metrics.active(True)
        try:
            await run_until_one_ends(
                settings.run(),
                self._watch_nodes(settings.looked),
                *(Watcher(kind, book, self._around).run() for kind, book in self._unrelated),
            )
        finally:
            metrics.active(False)

    def took_turn(self) -> bool:
        """Whether this instance has watched since the last call."""
        turns, self._turns = self._turns, 0
        return turns > 0

    async def _watch_nodes(self, looked: asyncio.Event) -> None:
        """List the Nodes anew whenever another label says which of them are managed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._around.settings.first_look_s):
                await looked.wait()
        while True:
            key = self._key.value
            watcher = Watcher(nodes.kind(key), self._nodes, self._around)
            await run_until_one_ends(watcher.run(), self._key.differs(key))


class ManagedKey:
    """The key of the label that says whether a node is managed, as the ledger has it."""

    def __init__(self) -> None:
        self.value = SettingsChanged().managed_label_key
        self._changed = asyncio.Event()

    def listen(self, said: Payload) -> None:
        """Take it from the settings."""
        if isinstance(said, SettingsChanged) and said.managed_label_key != self.value:
            self.value = said.managed_label_key
            self._changed.set()

    async def differs(self, key: str) -> None:
        """Return once it is another one."""
        while self.value == key:
            self._changed.clear()
            await self._changed.wait()
