"""The health gateway: the part that takes the reports of health monitors over a socket of the node.

Monitors of NVSentinel report to it as they are. A socket that cannot be made is tried again, and stops no other part.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import grpc.aio
import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.errors import SocketError
from gpuledger.agent.gateway.decide import Peer, Trust, shares_of
from gpuledger.agent.gateway.peers import PROC, PeerFolders, peer_of, with_container
from gpuledger.agent.gateway.recording import ReportRecorder
from gpuledger.agent.gateway.relay import Relay
from gpuledger.agent.gateway.reporters import Reporters
from gpuledger.agent.gateway.service import ReportCounts, ReportService
from gpuledger.agent.grpc_serving import serve
from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.part import BasePart, DurableStore, Recorder
from gpuledger.agent.settings import HealthSettings
from gpuledger.healthreports.protocol import SERVICE
from gpuledger.runtime.clock import Clock, NewId, Sleep, random_id

POLL_PERIOD_S: Final = 1.0
"""How often the socket is checked, and windows of repeated reports."""

STUCK_AFTER_S: Final = 60.0

log = structlog.get_logger("gpuledger.agent")


class HealthGateway(BasePart):
    """Serves health monitors; see `gpuledger.agent.part.Part`."""

    name = "health gateway"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        node: str,
        board: Board,
        store: DurableStore,
        settings: HealthSettings,
        counts: ReportCounts,
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
        new_id: NewId = random_id,
        proc: Path = PROC,
    ) -> None:
        assert settings.socket is not None, "without a socket there is no gateway"
        self._board = board
        self._sleep = sleep
        self._server_name = f"gpuledger-health-{new_id()}"
        self._server: grpc.aio.Server | None = None
        self._recorder = ReportRecorder(node, store, clock=clock, monotonic=monotonic)
        self._folders = PeerFolders(settings.pod_logs, settings.container_logs, proc)
        self._trust = Trust(settings.namespaces, os.geteuid(), settings.preflight_namespaces)
        shares = partial(shares_of, trust=self._trust)
        self._relay = Relay(settings.socket, self._server_name, self._identify, shares, new_id)
        self._service = ReportService(
            node,
            self._recorder,
            Reporters(self._trust, self._relay.peers, self._named, monotonic),
            counts,
            cards=self._cards,
            clock=clock,
        )

    async def run(self, record: Recorder) -> None:  # noqa: ARG002 - it records together with its state
        """Serve until cancelled; what was counted is recorded at the end."""
        await self._recorder.restore()
        try:
            while True:
                await self._poll()
                self.alive_at = asyncio.get_running_loop().time()
                await self._sleep(POLL_PERIOD_S)
        finally:
            await self._close()

    async def _poll(self) -> None:
        await self._recorder.close_due()
        try:
            if self._server is None:
                self._server = await self._served()
            await self._relay.ensure_listening()
        except SocketError as error:
            self.set_trouble(str(error))
        else:
            self.set_trouble(None)

    async def _served(self) -> grpc.aio.Server:
        try:
            return await serve(f"unix-abstract:{self._server_name}", SERVICE, self._service.handlers())
        except OSError as error:
            raise SocketError(f"Health reports cannot be served: {error}.") from error

    async def _close(self) -> None:
        try:
            await self._relay.close()
        except SocketError as error:
            log.warning("the socket of health monitors stays", reason=str(error))
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        await self._recorder.flush()

    async def _identify(self, connection: socket.socket) -> Peer:
        return await self._named(await asyncio.to_thread(peer_of, connection, self._folders))

    async def _named(self, peer: Peer) -> Peer:
        """The peer with its container's name where that matters, as far as the kubelet shows it by now."""
        if not self._trust.expects_checks(peer):
            return peer
        return await asyncio.to_thread(with_container, peer, self._folders)

    def _cards(self) -> tuple[CardFacts, ...]:
        survey = self._board.state.survey
        return () if survey is None else survey.cards
