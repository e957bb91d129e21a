"""Sends requests to the endpoint: TLS, the token, time-outs, and the translation of every failure.

It follows no redirect, because the token is for this endpoint alone. The token is read for each request, so that one
that was renewed counts at once; certificates are read again with the first request behind a failure. Nothing here
retries.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from gpuledger.edge.export.bounds import ExportBounds
from gpuledger.edge.export.decide import Answer, FailureReason, retry_after_s
from gpuledger.edge.export.errors import UndeliveredError
from gpuledger.edge.export.format import BATCH, STRUCTURED
from gpuledger.runtime.clock import Clock
from gpuledger.runtime.export_settings import ExportSettings

HIDDEN: Final = "***"
"""What stands for the token in an answer that repeats it."""

TOKEN_BYTES_MAX: Final = 16 * 1024
"""Servers take headers of some KiB; a larger file is none with a token."""


class Sender:
    """Sends to one endpoint, one request at a time."""

    def __init__(self, settings: ExportSettings, bounds: ExportBounds, clock: Clock) -> None:
        self._settings = settings
        self._bounds = bounds
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        """Give the connection back; the next request would make another one."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(self, body: bytes, *, is_batch: bool) -> Answer:
        """Send a request and return the answer, whatever it is.

        Raises:
            UndeliveredError: there was none.
        """
        headers, token = {"Content-Type": BATCH if is_batch else STRUCTURED}, self._token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with self._translating():
            session = self._session = self._session or self._opened()
            async with session.post(self._settings.url, data=body, headers=headers, allow_redirects=False) as answer:
                text = (await answer.content.read(self._bounds.answer_bytes_max)).decode(errors="replace")
                if token:
                    text = text.replace(token, HIDDEN)
                pause_s = retry_after_s(answer.headers.get("Retry-After"), self._clock())
                return Answer(answer.status, pause_s, text)

    def _token(self) -> str:
        """The token, empty where there is none."""
        path = self._settings.token
        if path is None:
            return ""
        try:
            with path.open(encoding="ascii") as file:
                token = file.read(TOKEN_BYTES_MAX + 1).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UndeliveredError(FailureReason.TOKEN, f"The token in {path} cannot be read: {error}.") from error
        if not token or len(token) > TOKEN_BYTES_MAX or not token.isprintable() or " " in token:
            raise UndeliveredError(FailureReason.TOKEN, f"The file {path} holds no token; write one line into it.")
        return token

    def _opened(self) -> aiohttp.ClientSession:
        bounds = self._bounds
        timeout = aiohttp.ClientTimeout(total=bounds.request_timeout_s, sock_connect=bounds.connect_timeout_s)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1, ssl=self._tls()), timeout=timeout)

    def _tls(self) -> ssl.SSLContext | bool:
        settings = self._settings
        if not settings.url.startswith("https:"):
            return True
        try:
            context = ssl.create_default_context(cafile=settings.ca)
            if settings.certificate is not None:
                context.load_cert_chain(settings.certificate, settings.key)
        except OSError as error:
            raise UndeliveredError(FailureReason.TOKEN, f"The certificates cannot be read: {error}.") from error
        return context

    @asynccontextmanager
    async def _translating(self) -> AsyncIterator[None]:
        where = self._settings.endpoint
        try:
            yield
        except TimeoutError as error:
            await self.aclose()
            text = (
                f"{where} did not answer within {self._bounds.request_timeout_s:g} s. Check that it is not overloaded."
            )
            raise UndeliveredError(FailureReason.TIMEOUT, text) from error
        except (aiohttp.ClientError, OSError) as error:
            await self.aclose()
            why = str(error) or type(error).__name__
            text = f"{where} did not answer: {why}. Check that it runs, can be reached, and is trusted."
            raise UndeliveredError(FailureReason.UNREACHABLE, text) from error
        except asyncio.CancelledError:
            await self.aclose()
            raise
