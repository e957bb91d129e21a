"""The part that looks at the node's monitoring: scrapes the exporter, and tells whether its heart beats."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

import structlog

from gpuledger.agent.errors import MonitoringError
from gpuledger.agent.heartbeat import Monitoring, newest_update
from gpuledger.agent.part import Fact, Tell
from gpuledger.events.node import NodeMonitoringObserved
from gpuledger.runtime.clock import Clock, Sleep

TIMEOUT_S: Final = 10.0
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
CHUNK_BYTES: Final = 64 * 1024
ACCEPT: Final = "text/plain;version=0.0.4"

Scrape = Callable[[], Awaitable[str]]
"""The metrics' text; raises MonitoringError where there is none."""


def scraper(url: str, timeout_s: float = TIMEOUT_S, body_bytes_max: int = BODY_BYTES_MAX) -> Scrape:
    """A way to scrape the exporter at `url`; redirects are not followed."""

    async def scrape() -> str:
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.to_thread(_text, url, timeout_s, body_bytes_max)
        except TimeoutError as error:
            raise MonitoringError(f"The exporter at {url} has not answered within {timeout_s:g} s.") from error
        except (HTTPException, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise MonitoringError(f"The exporter at {url} cannot be scraped: {reason}.") from error

    return scrape


def _text(url: str, timeout_s: float, body_bytes_max: int) -> str:
    """Runs in a thread, which ends soon after its time even where nobody waits for it any more."""
    parts, deadline = urlsplit(url), time.monotonic() + timeout_s
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        connection.request("GET", target, headers={"Accept": ACCEPT, "Connection": "close"})
        answer = connection.getresponse()
        if answer.status != HTTPStatus.OK:
            raise MonitoringError(f"The exporter at {url} answers with status {answer.status}.")
        return _body(answer, url, deadline, body_bytes_max).decode(errors="replace")
    finally:
        connection.close()


def _body(answer: HTTPResponse, url: str, deadline: float, body_bytes_max: int) -> bytes:
    body = bytearray()
    while chunk := answer.read1(CHUNK_BYTES):
        body += chunk
        if len(body) > body_bytes_max:
            raise MonitoringError(f"The exporter at {url} answers with more than {body_bytes_max} bytes.")
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(body)


SCRAPE_PERIOD_S: Final = 15.0
LOOKS_MISSED_MAX: Final = 4
"""For so many periods nothing may have been looked at."""

log = structlog.get_logger("gpuledger.agent")


class ExporterWatch:
    """Looks at the exporter of a node."""

    name = "monitoring"
    stuck_after_s = LOOKS_MISSED_MAX * SCRAPE_PERIOD_S

    def __init__(
        self,
        node: str,
        scrape: Scrape,
        *,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._node = node
        self._scrape = scrape
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._monitoring = Monitoring()
        self.trouble: str | None = None
        self.alive_at: float | None = None

    async def run(self, tell: Tell) -> None:
        """See `gpuledger.agent.part.Part.run`."""
        while True:
            told = await self.look()
            if told is not None:
                await tell([Fact(self._node, told, self._clock())])
            self.alive_at = asyncio.get_running_loop().time()
            await self._sleep(SCRAPE_PERIOD_S)

    def begin_anew(self) -> None:
        """Tell the next looks again, because somebody counts them from now on."""
        self._monitoring.begin_anew()

    async def look(self) -> NodeMonitoringObserved | None:
        """Look once; what is to be told of it, or None."""
        try:
            updated_at = newest_update(await self._scrape())
        except MonitoringError as error:
            self._note(str(error))
            return self._monitoring.missed()
        told = self._monitoring.seen(updated_at, self._clock(), self._monotonic())
        if told is not None:
            self._note(
                None
                if told.fresh
                else "The exporter answers, but by its clock or ours it has long not renewed its metrics."
            )
        return told

    def _note(self, trouble: str | None) -> None:
        """Log what is new, once."""
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble is None:
            log.info("monitoring is alive again", node=self._node)
        else:
            log.warning("monitoring is not alive", node=self._node, reason=trouble)
