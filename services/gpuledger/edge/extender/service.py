"""The extender: its leader answers kube-scheduler, from a fold of the ledger; it reserves devices and binds pods."""

import asyncio
from typing import NamedTuple

from gpuledger.db.locks import EXTENDER_LOCK
from gpuledger.edge.effects.service import EffectService
from gpuledger.edge.extender import metrics
from gpuledger.edge.extender.binder import Binder
from gpuledger.edge.extender.certificate import ExtenderCertificate
from gpuledger.edge.extender.cluster import PodWriter
from gpuledger.edge.extender.demand import SeenPods
from gpuledger.edge.extender.holdings import Holdings
from gpuledger.edge.extender.records import ReservationRecords
from gpuledger.edge.extender.server import ExtenderServer
from gpuledger.edge.extender.settings import ExtenderSettings
from gpuledger.edge.extender.settler import ExtenderTools, Settler
from gpuledger.edge.extender.state import ExtenderProjection, ExtenderState
from gpuledger.edge.extender.unobserved import UnobservedPods
from gpuledger.edge.extender.verbs import Verbs
from gpuledger.edge.extender.wire import BindingArgs
from gpuledger.events.position import Offset
from gpuledger.events.publishing import SourceKind
from gpuledger.runtime.tasks import Work, run_until_one_fails


class ExtenderHealth(NamedTuple):
    """`state` is standing-by, log-changed, folding, writing or stopped; `reason` is what keeps it from answering.

    `is_ready`: this process answers kube-scheduler. `open` counts reservations without an outcome.
    """

    state: str
    position: Offset
    is_ready: bool
    nodes: int
    open: int
    reason: str | None


class _Parts(NamedTuple):
    """What works on a folded state."""

    holdings: Holdings
    verbs: Verbs
    binder: Binder


class ExtenderEffects:
    """Answers and binds, from getting the lock to losing it."""

    def __init__(self, tools: ExtenderTools) -> None:
        self.state = ExtenderState()
        self._tools = tools
        settings = tools.settings
        self._seen = SeenPods(settings.pods_kept_max)
        self._writer = PodWriter(tools.client, tools.breaker, settings.names, settings.request_timeout_s)
        self._records = ReservationRecords(self.state, tools.recorder)
        self._settler = Settler(self.state, self._records, self._writer, tools, self._is_attempted)
        self.unobserved = UnobservedPods(self.state, self._writer, tools)
        self._parts: _Parts | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it is folded, and has looked at what a process before it has left open."""
        return self._parts is not None and self._settler.looked.is_set()

    @property
    def questions(self) -> Verbs:
        """What is answered at once; it is ready."""
        return self._folded().verbs

    async def bind(self, args: BindingArgs) -> None:
        """Bind a pod; it is ready. Raises BindError."""
        await self._folded().binder.bind(args)

    def resume(self) -> None:
        """Begin to answer, and settle what is open: the state is folded to the head of the log."""
        self.state.follow_reservations()
        holdings = Holdings(self.state)
        verbs = Verbs(holdings, self._seen, self._tools.settings)
        binder = Binder(self.state, holdings, self._records, self._settler, self._writer, self._seen, self._tools)
        self._parts = _Parts(holdings, verbs, binder)
        self._settler.begin(holdings)
        self._measure()

    def advance(self) -> None:
        """Follow what was folded, and settle what nobody works on: another process may have reserved it."""
        parts = self._folded()
        for uid in parts.holdings.refresh():
            if self.state.open(uid) is not None and not parts.binder.is_attempted(uid):
                self._settler.add(uid)
        self._records.folded()
        self._measure()

    def work(self) -> list[Work]:
        """The workers, which run side by side until one fails."""
        settlers = [self._settler.run() for _ in range(self._tools.settings.settlers_max)]
        return [self._folded().binder.run(), *settlers, self.unobserved.run()]

    def health(self, state: str, position: Offset, reason: str | None) -> ExtenderHealth:
        """The present state."""
        nodes = 0 if self._parts is None else len(self._parts.holdings.nodes)
        is_open = len(self.state.open_reservation)
        return ExtenderHealth(state, position, self.is_ready, nodes, is_open, reason)

    def _is_attempted(self, uid: str) -> bool:
        return self._parts is not None and self._parts.binder.is_attempted(uid)

    def _measure(self) -> None:
        metrics.RESERVATIONS.set(len(self.state.open_reservation))

    def _folded(self) -> _Parts:
        assert self._parts is not None, "the state is folded to the head of the log"
        return self._parts


class ExtenderLeadership(EffectService[ExtenderSettings, ExtenderEffects]):
    """Waits for leadership, and answers while it lasts."""

    source = SourceKind.EXTENDER
    lock = EXTENDER_LOCK
    projection = ExtenderProjection
    active = metrics.ACTIVE

    def new_effects(self, tools: ExtenderTools) -> ExtenderEffects:
        """The effects of a leader."""
        return ExtenderEffects(tools)

    def leader(self) -> ExtenderEffects | None:
        """What answers, while this process leads and is ready."""
        state, _, _, effects = self.standing()
        return effects if state == "writing" and effects is not None and effects.is_ready else None

    def health(self) -> ExtenderHealth:
        """The present state."""
        state, position, reason, effects = self.standing()
        if effects is None:
            return ExtenderHealth(state, position, False, 0, 0, reason)
        return effects.health(state, position, reason)


class Extender:
    """The extender with its HTTP server, which also serves while another process leads, and then refuses."""

    def __init__(
        self,
        leadership: ExtenderLeadership,
        settings: ExtenderSettings,
        certificate: ExtenderCertificate | None = None,
    ) -> None:
        self._leadership = leadership
        self._certificate = certificate
        self._server = ExtenderServer(leadership.leader, settings)
        self._url: asyncio.Future[str] | None = None

    def health(self) -> ExtenderHealth:
        """The present state."""
        return self._leadership.health()

    async def url(self) -> str:
        """Where kube-scheduler finds it, without a path; waits until it listens."""
        return await asyncio.shield(self._listening())

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            ListenError: the address cannot be listened on.
        """
        certificate = self._certificate
        async with self._server.serving(None if certificate is None else certificate.context) as url:
            if not self._listening().done():
                self._listening().set_result(url)
            following = [] if certificate is None else [certificate.run()]
            metrics.LISTENING.set(1)
            try:
                await run_until_one_fails([self._leadership.run(), *following])
            finally:
                metrics.LISTENING.set(0)

    def _listening(self) -> "asyncio.Future[str]":
        if self._url is None:
            self._url = asyncio.get_running_loop().create_future()
        return self._url
