"""Reads an exporter's metrics over HTTP: one request, bounded in time and size, never repeated here."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import aiohttp

from gpuledger.agent.errors import MonitoringError

TIMEOUT_S: Final = 10.0
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
ACCEPT: Final = "text/plain;version=0.0.4"

Scrape = Callable[[], Awaitable[str]]
"""The metrics' text; raises MonitoringError where there is none."""


@asynccontextmanager
async def scraping(
    url: str, timeout_s: float = TIMEOUT_S, body_bytes_max: int = BODY_BYTES_MAX
) -> AsyncIterator[Scrape]:
    """A way to scrape the exporter at `url`, for the length of the block."""
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(timeout=timeout, headers={"Accept": ACCEPT}) as session:

        async def scrape() -> str:
            try:
                return await _text(session, url, body_bytes_max)
            except TimeoutError as error:
                raise MonitoringError(f"The exporter at {url} has not answered within {timeout_s:g} s.") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                reason = str(error) or type(error).__name__
                raise MonitoringError(f"The exporter at {url} cannot be scraped: {reason}.") from error

        yield scrape


async def _text(session: aiohttp.ClientSession, url: str, body_bytes_max: int) -> str:
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status != HTTPStatus.OK:
            raise MonitoringError(f"The exporter at {url} answers with status {answer.status}.")
        body = bytearray()
        async for chunk in answer.content.iter_any():
            body += chunk
            if len(body) > body_bytes_max:
                raise MonitoringError(f"The exporter at {url} answers with more than {body_bytes_max} bytes.")
    return body.decode(errors="replace")
