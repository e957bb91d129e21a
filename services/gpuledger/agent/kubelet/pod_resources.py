"""Pod resources: the part that polls the kubelet for the units that containers hold, and records changes.

The kubelet has no call that reports a container's end, so its list is all there is. A kubelet that does not respond
ends no allocation; and one that has just started may list no pods for as long as it cannot reach its API server, so
that only a list after the first one with any pods counts as complete. Units that were just allocated are in use whether
or not a list shows them yet.
"""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import orjson
import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.errors import KubeletAwayError, KubeletError
from gpuledger.agent.kubelet.allocations import RecordedAllocations, allocations, changes, in_use
from gpuledger.agent.kubelet.podresources_pb2 import ListPodResourcesRequest, ListPodResourcesResponse
from gpuledger.agent.kubelet.rpc import LIST_POD_RESOURCES, call
from gpuledger.agent.kubelet.sockets import FileIdentity, identity_of
from gpuledger.agent.part import BasePart, Recorder, StateStore
from gpuledger.api.sharing import DEFAULT_NAMES, SharingNames
from gpuledger.runtime.clock import Clock, Sleep

POLL_PERIOD_S: Final = 10.0
SOON_S: Final = 1.0
"""The pause before the poll that follows an allocation, which the kubelet notes only after the plugin responded."""

GRANT_LISTS: Final = 2
"""An allocation that so many lists, requested after it, do not show is no longer counted as in use."""

LIST_TIMEOUT_S: Final = 10.0
STUCK_AFTER_S: Final = 60.0
"""Much longer than polls that time out."""

STATE_KEY: Final = "allocations"

STATE_BYTES_MAX: Final = 60 * 1024
"""The size of the stored ids, less than the outbox takes; allocations beyond it that end while no agent runs are
missed."""

InUse = Mapping[str, frozenset[str]]
"""Ids of units by resource."""

log = structlog.get_logger("gpuledger.agent")


class _Grant(NamedTuple):
    """Units that the plugin gave a container; from list number `until` on only the lists count."""

    resource: str
    ids: frozenset[str]
    until: int


class PodResources(BasePart):
    """Knows which containers hold which units; see `gpuledger.agent.part.Part`."""

    name = "pod resources"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        node: str,
        board: Board,
        store: StateStore,
        *,
        clock: Clock,
        socket: Path,
        names: SharingNames = DEFAULT_NAMES,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.lists = 0
        """How many lists the kubelet gave."""
        self.errors = 0
        self._node = node
        self._board = board
        self._store = store
        self._clock = clock
        self._socket = socket
        self._names = names
        self._sleep = sleep
        self._soon = False
        self._requests = 0
        self._grants: list[_Grant] = []
        self._recorded: RecordedAllocations = {}
        self._stored: frozenset[str] = frozenset()
        self._kubelet: FileIdentity | None = None

    def on_allocated(self, resource: str, ids: frozenset[str]) -> None:
        """The plugin allocates units: they are in use from now on, and the next poll comes early."""
        self._soon = True
        self._grants.append(_Grant(resource, ids, self._requests + GRANT_LISTS))
        if self._board.state.in_use is not None:
            self._board.put(in_use=_union(self._board.state.in_use, {resource: ids}))

    async def list_pods(self) -> tuple[FileIdentity | None, ListPodResourcesResponse]:
        """Which kubelet there is, its pods and what their containers have, now.

        Raises:
            KubeletError: the kubelet does not answer.
        """
        return identity_of(self._socket), await self._call()

    async def run(self, record: Recorder) -> None:
        """Poll and record until cancelled."""
        self._stored = _read_ids(self._store.get(STATE_KEY))
        self._recorded = dict.fromkeys(self._stored)
        while True:
            await self._poll(record)
            self.alive_at = asyncio.get_running_loop().time()
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the period, or until just after an allocation."""
        for _ in range(round(POLL_PERIOD_S / SOON_S)):
            await self._sleep(SOON_S)
            if self._soon:
                self._soon = False
                await self._sleep(SOON_S)
                return

    async def _poll(self, record: Recorder) -> None:
        try:
            kubelet = identity_of(self._socket)
            pods = await self._list(kubelet)
        except KubeletError as error:
            self.errors += 1
            self.set_trouble(str(error))
            return
        self.lists += 1
        self.set_trouble(None)
        complete = kubelet == self._kubelet
        if pods.pod_resources:
            self._kubelet = kubelet
        self._show(pods, complete=complete)
        await self._record(record, pods, complete=complete)

    async def _list(self, kubelet: FileIdentity | None) -> ListPodResourcesResponse:
        if kubelet is None:
            raise KubeletAwayError(f"There is no {self._socket}. Is a kubelet running, and its folder mounted?")
        self._requests += 1
        self._grants = [grant for grant in self._grants if self._requests < grant.until]
        return await self._call()

    async def _call(self) -> ListPodResourcesResponse:
        request, response = ListPodResourcesRequest(), ListPodResourcesResponse
        return await call(self._socket, LIST_POD_RESOURCES, request, response, timeout_s=LIST_TIMEOUT_S)

    def _show(self, pods: ListPodResourcesResponse, *, complete: bool) -> None:
        """Put the units in use on the board; an incomplete list frees none."""
        before, used = self._board.state.in_use, in_use(pods)
        if before is None and self._recorded and not pods.pod_resources:
            return  # the ledger has allocations that this kubelet has yet to find
        if not complete and before is not None:
            used = _union(used, before)
        for grant in self._grants:
            used = _union(used, {grant.resource: grant.ids})
        self._board.put(in_use=used)

    async def _record(self, record: Recorder, pods: ListPodResourcesResponse, *, complete: bool) -> None:
        """Record the changes; their ids are stored before, so that a restart cannot miss their ends."""
        found = changes(self._recorded, allocations(self._node, pods, self._names), self._clock(), complete=complete)
        if found.facts:
            await self._save(self._stored | found.recorded.keys())
            await record(found.facts)
        self._recorded = found.recorded
        self._board.put(allocations=tuple(one for one in found.recorded.values() if one is not None))
        await self._save(frozenset(found.recorded))

    async def _save(self, subjects: frozenset[str]) -> None:
        if subjects != self._stored:
            await self._store.put(STATE_KEY, _write_ids(subjects))
            self._stored = subjects


def _union(one: InUse, other: InUse) -> InUse:
    nothing: frozenset[str] = frozenset()
    return {name: one.get(name, nothing) | other.get(name, nothing) for name in one.keys() | other.keys()}


def _write_ids(subjects: Iterable[str]) -> bytes:
    """The ids as JSON, as many as fit."""
    ids, room = sorted(subjects), STATE_BYTES_MAX
    for count, one in enumerate(ids):
        room -= len(one.encode()) + len('"",')
        if room < 0:
            log.warning("not all allocations can be stored over a restart", stored=count, of=len(ids))
            return orjson.dumps(ids[:count])
    return orjson.dumps(ids)


def _read_ids(value: bytes | None) -> frozenset[str]:
    """The ids that `_write_ids` wrote; none where the value cannot be read."""
    try:
        ids = orjson.loads(value or b"[]")
    except orjson.JSONDecodeError:
        ids = None
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        log.warning("the stored allocations cannot be read; the ends of some may be missed")
        return frozenset()
    return frozenset(ids)
