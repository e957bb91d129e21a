"""The HTTPS server of webhooks: it bounds what comes in, and leaves every decision to its service.

While nothing can be decided in time it answers 503, which an API server treats as the webhook's failure policy says.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import NamedTuple

import orjson
from aiohttp import web
from prometheus_client import Counter, Gauge

from gpuledger.edge.webhooks.errors import ReviewError
from gpuledger.edge.webhooks.serving.connections import accepting
from gpuledger.edge.webhooks.serving.review import AdmissionRequest, AdmissionResponse, read_request, review_document
from gpuledger.edge.webhooks.settings import ServingSettings

Handler = Callable[[web.Request], Awaitable[web.Response]]
Answer = Callable[[AdmissionRequest], Awaitable[AdmissionResponse | None]]
"""Answers a request; None while nothing can be decided."""

TOO_BUSY = "Too many reviews are under way. Try again in a moment.\n"


class ServerMetrics(NamedTuple):
    """What a server counts.

    `under_way` are reviews that are being read or answered, `refused` connections that were closed because there were
    too many, and `answered` gets the seconds from a review's last byte to its answer.
    """

    under_way: Gauge
    refused: Counter
    answered: Callable[[AdmissionRequest, float], None]


class ReviewServer:
    """Serves AdmissionReviews at the paths of a service."""

    def __init__(self, settings: ServingSettings, metrics: ServerMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self.slots = asyncio.Semaphore(settings.reviews_at_once_max)

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None, paths: Mapping[str, Handler]) -> AsyncIterator[str]:
        """Serve for the length of the block; gives the URL, without a path.

        Raises:
            ListenError: the address cannot be listened on.
        """
        app = web.Application(client_max_size=self._settings.review_bytes_max)
        for path, handler in paths.items():
            app.router.add_post(path, handler)
        runner = web.AppRunner(
            app, access_log=None,
            shutdown_timeout=self._settings.shutdown_timeout_s, keepalive_timeout=self._settings.idle_timeout_s,
        )  # fmt: skip
        await runner.setup()
        try:
            assert runner.server is not None
            async with accepting(runner.server, context, self._settings, self._metrics.refused) as (name, number):
                shown = f"[{name}]" if ":" in name else name
                yield f"{'https' if context else 'http'}://{shown}:{number}"
        finally:
            await runner.cleanup()

    async def answer(self, http: web.Request, decide: Answer, not_ready: str) -> web.Response:
        """Wait for a slot, read and answer, all within the time that the API server waits."""
        try:
            async with asyncio.timeout(self._settings.review_timeout_s), self.slots:
                with self._metrics.under_way.track_inprogress():
                    return await self._reviewed(await http.read(), decide, not_ready)
        except TimeoutError:
            return web.Response(status=503, text=TOO_BUSY)

    async def _reviewed(self, body: bytes, decide: Answer, not_ready: str) -> web.Response:
        began_s = perf_counter()
        try:
            request = read_request(orjson.loads(body))
        except (orjson.JSONDecodeError, ReviewError) as error:
            return web.Response(status=400, text=f"{error} Send what an API server sends to a webhook.\n")
        response = await decide(request)
        if response is None:
            return web.Response(status=503, text=not_ready)
        document = orjson.dumps(review_document(request.uid, response))
        self._metrics.answered(request, perf_counter() - began_s)
        return web.Response(body=document, content_type="application/json")
