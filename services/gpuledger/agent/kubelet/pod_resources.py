"""Who has which units, as the node's kubelet says: looked at again and again, and told when it changes.

There is no call by which a kubelet says that a container gave its devices back, so its list is all there is. A kubelet
that does not answer ends nothing, and one that has just begun may not have its pods yet, nor get them for as long as
it does not reach its API server: nothing is believed to be gone before a list after the first that had any pods. What
was allocated just now is in use whether or not a list has it already.
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
from gpuledger.agent.part import Recorder, StateStore
from gpuledger.runtime.clock import Clock, Sleep

POD_RESOURCES_SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")

POLL_PERIOD_S: Final = 10.0
SOON_S: Final = 1.0
"""How soon it is looked after an allocation: the kubelet notes it only after it was answered."""

GRANT_LISTS: Final = 2
"""So many lists must have been asked for after an allocation before it counts for nothing that none has it."""

LIST_TIMEOUT_S: Final = 10.0
STUCK_AFTER_S: Final = 60.0
"""Longer than looks that time out, by much."""

STATE_KEY: Final = "allocations"
"""Under this name stands which allocations the ledger was told of."""

STATE_BYTES_MAX: Final = 60 * 1024
"""So much of it is kept, less than the outbox takes. What is beyond that, and ends without the agent, nobody tells."""

InUse = Mapping[str, frozenset[str]]
"""Ids of units by resource."""

log = structlog.get_logger("gpuledger.agent")


class _Grant(NamedTuple):
    """Units that a container was given, and the list from which on only lists count, by its number."""

    resource: str
    ids: frozenset[str]
    until: int


class PodResources:
    """The part of the agent that asks the kubelet which containers have which devices."""

    name: Final = "pod resources"
    stuck_after_s: Final = STUCK_AFTER_S

    def __init__(
        self,
        node: str,
        board: Board,
        keep: StateStore,
        *,
        clock: Clock,
        socket: Path = POD_RESOURCES_SOCKET,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.alive_at: float | None = None
        self.looks = 0
        """How many lists the kubelet gave."""
        self.errors = 0
        self.trouble: str | None = None
        """Why the kubelet did not answer last; None where it did."""
        self._node = node
        self._board = board
        self._keep = keep
        self._clock = clock
        self._socket = socket
        self._sleep = sleep
        self._soon = False
        self._asked = 0
        self._grants: list[_Grant] = []
        self._told: RecordedAllocations = {}
        self._kept: frozenset[str] = frozenset()
        self._kubelet: FileIdentity | None = None

    def on_allocated(self, resource: str, ids: frozenset[str]) -> None:
        """Units are allocated: they are in use from now on, and it is looked before the period is over."""
        self._soon = True
        self._grants.append(_Grant(resource, ids, self._asked + GRANT_LISTS))
        if self._board.state.in_use is not None:
            self._board.put(in_use=_both(self._board.state.in_use, {resource: ids}))

    async def run(self, record: Recorder) -> None:
        """Look until cancelled."""
        self._kept = _remembered(self._keep.get(STATE_KEY))
        self._told = dict.fromkeys(self._kept)
        while True:
            await self._look(record)
            self.alive_at = asyncio.get_running_loop().time()
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the period, or for as long as it takes to see what was allocated."""
        for _ in range(round(POLL_PERIOD_S / SOON_S)):
            await self._sleep(SOON_S)
            if self._soon:
                self._soon = False
                await self._sleep(SOON_S)
                return

    async def _look(self, record: Recorder) -> None:
        try:
            kubelet = identity_of(self._socket)
            pods = await self._listed(kubelet)
        except KubeletError as error:
            self._missed(str(error))
            return
        self.looks += 1
        if self.trouble is not None:
            self.trouble = None
            log.info("the kubelet says again who has which units", socket=str(self._socket))
        whole = kubelet == self._kubelet
        if pods.pod_resources:
            self._kubelet = kubelet
        self._show(pods, whole=whole)
        await self._record_changes(record, pods, whole=whole)

    async def _listed(self, kubelet: FileIdentity | None) -> ListPodResourcesResponse:
        if kubelet is None:
            raise KubeletAwayError(f"There is no {self._socket}. Is a kubelet running, and its folder mounted?")
        self._asked += 1
        self._grants = [grant for grant in self._grants if self._asked < grant.until]
        request, answer = ListPodResourcesRequest(), ListPodResourcesResponse
        return await call(self._socket, LIST_POD_RESOURCES, request, answer, timeout_s=LIST_TIMEOUT_S)

    def _missed(self, reason: str) -> None:
        self.errors += 1
        if self.trouble is None:
            log.warning("the kubelet does not say who has which units; what it said last stands", reason=reason)
        self.trouble = reason

    def _show(self, pods: ListPodResourcesResponse, *, whole: bool) -> None:
        """Put on the board what is in use; a list that may not be whole frees nothing."""
        before, used = self._board.state.in_use, in_use(pods)
        if before is None and self._told and not pods.pod_resources:
            return  # the ledger knows of some that this kubelet has yet to find
        if not whole and before is not None:
            used = _both(used, before)
        for grant in self._grants:
            used = _both(used, {grant.resource: grant.ids})
        self._board.put(in_use=used)

    async def _record_changes(self, record: Recorder, pods: ListPodResourcesResponse, *, whole: bool) -> None:
        """Tell the difference; what will have been told is kept before, so that its end cannot be missed."""
        found = changes(self._told, allocations(self._node, pods), self._clock(), whole=whole)
        if found.facts:
            await self._remember(self._kept | found.told.keys())
            await record(found.facts)
        self._told = found.told
        await self._remember(frozenset(found.told))

    async def _remember(self, subjects: frozenset[str]) -> None:
        if subjects != self._kept:
            await self._keep.put(STATE_KEY, _kept(subjects))
            self._kept = subjects


def _both(one: InUse, other: InUse) -> InUse:
    nothing: frozenset[str] = frozenset()
    return {name: one.get(name, nothing) | other.get(name, nothing) for name in one.keys() | other.keys()}


def _kept(subjects: Iterable[str]) -> bytes:
    """As many of the ids as can be kept."""
    ids, room = sorted(subjects), STATE_BYTES_MAX
    for count, one in enumerate(ids):
        room -= len(one.encode()) + len('"",')
        if room < 0:
            log.warning("not all allocations can be kept over a restart", kept=count, of=len(ids))
            return orjson.dumps(ids[:count])
    return orjson.dumps(ids)


def _remembered(value: bytes | None) -> frozenset[str]:
    """The ids that were kept; what is not readable is as good as nothing."""
    try:
        ids = orjson.loads(value or b"[]")
    except orjson.JSONDecodeError:
        ids = None
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        log.warning("which allocations were told before cannot be read; ends of some may be missed")
        return frozenset()
    return frozenset(ids)
