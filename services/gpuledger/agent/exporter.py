"""Monitoring: the part that scrapes the node's dcgm-exporter and records whether its metrics are fresh.

A scrape is one bounded HTTP request. The standard library's client makes it in a thread, because an asynchronous client
takes more memory than an agent may use. Nothing is scraped on a node that has had no cards since the agent started: no
exporter is expected there.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

import structlog

from gpuledger.agent.errors import MonitoringError
from gpuledger.agent.heartbeat import HeartbeatTracker, read_scrape
from gpuledger.agent.part import AgentFact, BasePart, Recorder
from gpuledger.events.node import NodeMonitoringObserved
from gpuledger.runtime.clock import Clock, Sleep

SCRAPE_PERIOD_S: Final = 15.0
MISSED_SCRAPES_MAX: Final = 4
SURVEY_WAIT_S: Final = 1.0
SURVEY_WAITS_MAX: Final = 15
"""How often the first scrape waits so long for the first survey; a driver that hangs must not keep it from scraping."""

TIMEOUT_S: Final = 10.0
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
CHUNK_BYTES: Final = 64 * 1024
ACCEPT: Final = "text/plain;version=0.0.4"

STALE: Final = "The exporter responds, but by its clock or ours it has not renewed its metrics for too long."

log = structlog.get_logger("gpuledger.agent")

Scrape = Callable[[], Awaitable[str]]
"""Fetches the text of the metrics; raises MonitoringError where it cannot."""


class ExporterMonitor(BasePart):
    """Watches the exporter of a node; see `gpuledger.agent.part.Part`."""

    name = "monitoring"
    stuck_after_s = MISSED_SCRAPES_MAX * SCRAPE_PERIOD_S

    def __init__(
        self,
        node: str,
        scrape: Scrape,
        *,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        has_cards: Callable[[], bool | None] = lambda: True,
    ) -> None:
        self._node = node
        self._scrape = scrape
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._has_cards = has_cards
        self._had_cards = False
        self._heartbeats = HeartbeatTracker()

    async def run(self, record: Recorder) -> None:
        """Scrape and record until cancelled."""
        await self._await_survey()
        while True:
            event = await self.poll()
            if event is not None:
                await record([AgentFact(self._node, event, self._clock())])
            self.alive_at = asyncio.get_running_loop().time()
            await self._sleep(SCRAPE_PERIOD_S)

    def restart_streak(self) -> None:
        """Record the next heartbeats again, because somebody counts them from now on."""
        self._heartbeats.restart_streak()

    async def poll(self) -> NodeMonitoringObserved | None:
        """Scrape once; returns the event to record, if any."""
        if not self._is_expected():
            self.set_trouble(None)
            return None
        try:
            scraped = read_scrape(await self._scrape())
        except MonitoringError as error:
            self.set_trouble(str(error))
            return self._heartbeats.on_failure()
        event = self._heartbeats.on_scrape(scraped, self._clock(), self._monotonic())
        if event is not None:
            self.set_trouble(None if event.fresh else STALE)
        return event

    async def _await_survey(self) -> None:
        for _ in range(SURVEY_WAITS_MAX):
            if self._has_cards() is not None:
                return
            await self._sleep(SURVEY_WAIT_S)

    def _is_expected(self) -> bool:
        """Whether the node may have an exporter; where all cards are lost it goes on being watched."""
        has_cards = self._has_cards()
        self._had_cards = self._had_cards or bool(has_cards)
        return self._had_cards or has_cards is None


def scraper(url: str, timeout_s: float = TIMEOUT_S, body_bytes_max: int = BODY_BYTES_MAX) -> Scrape:
    """Returns a function that scrapes the exporter at `url`, without following redirects."""

    async def scrape() -> str:
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.to_thread(_fetch, url, timeout_s, body_bytes_max)
        except TimeoutError as error:
            raise MonitoringError(f"The exporter at {url} has not responded within {timeout_s:g} s.") from error
        except (HTTPException, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise MonitoringError(f"The exporter at {url} cannot be scraped: {reason}.") from error

    return scrape


def _fetch(url: str, timeout_s: float, body_bytes_max: int) -> str:
    """Runs in a thread, which ends soon after its time-out even if nobody waits for it any more."""
    parts, deadline = urlsplit(url), time.monotonic() + timeout_s
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        connection.request("GET", target, headers={"Accept": ACCEPT, "Connection": "close"})
        response = connection.getresponse()
        if response.status != HTTPStatus.OK:
            raise MonitoringError(f"The exporter at {url} responds with status {response.status}.")
        return _body(response, url, deadline, body_bytes_max).decode(errors="replace")
    finally:
        connection.close()


def _body(response: HTTPResponse, url: str, deadline: float, body_bytes_max: int) -> bytes:
    body = bytearray()
    while chunk := response.read1(CHUNK_BYTES):
        body += chunk
        if len(body) > body_bytes_max:
            raise MonitoringError(f"The exporter at {url} responds with more than {body_bytes_max} bytes.")
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(body)
