"""Reads an exporter's metrics over HTTP: one request, bounded in time and size, never repeated here.

The standard library's client reads it in a thread: an asynchronous one takes more memory than an agent has to spare.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from gpuledger.agent.errors import MonitoringError

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
