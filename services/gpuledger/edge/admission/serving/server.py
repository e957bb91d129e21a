"""Answers API servers over HTTPS. A thin shell: it bounds what comes in, and has everything decided elsewhere.

While nothing can be decided it answers 503, which an API server treats as the webhook's failure policy says.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter

import orjson
from aiohttp import web

from gpuledger.edge.admission.certificates.webhook_configuration import MUTATE_PATH, VALIDATE_PATH
from gpuledger.edge.admission.errors import ReviewError
from gpuledger.edge.admission.metrics import LATENCY, REFUSALS, REVIEWS, UNDER_WAY
from gpuledger.edge.admission.rules.decide import RULES
from gpuledger.edge.admission.serving.connections import listening
from gpuledger.edge.admission.serving.review import Review, Verdict, answer, read_review
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.runtime.telemetry_http import parse_address

Decide = Callable[[Review], Verdict | None]
"""What is decided; None while nothing can be."""

NOT_READY = "The ledger is not read to its end yet. Try again in a moment.\n"
OTHER = "other"
"""What metrics call a resource that there is no rule for."""


class Server:
    """Reviews come in, answers go out."""

    def __init__(self, decide: Decide, settings: AdmissionSettings) -> None:
        self._decide = decide
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.reviews_at_once_max)

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None) -> AsyncIterator[str]:
        """Serve for the length of the block; gives the URL, without a path.

        Raises:
            ListenError: nobody can listen there.
        """
        app = web.Application(client_max_size=self._settings.review_bytes_max)
        app.router.add_post(MUTATE_PATH, self._on_mutate)
        app.router.add_post(VALIDATE_PATH, self._on_validate)
        host, port = parse_address(self._settings.listen)
        runner = web.AppRunner(
            app, access_log=None,
            shutdown_timeout=self._settings.shutdown_timeout_s, keepalive_timeout=self._settings.idle_timeout_s,
        )  # fmt: skip
        await runner.setup()
        try:
            assert runner.server is not None
            async with listening(runner.server, host, port, context, self._settings) as (name, number):
                shown = f"[{name}]" if ":" in name else name
                yield f"{'https' if context else 'http'}://{shown}:{number}"
        finally:
            await runner.cleanup()

    async def _on_mutate(self, http: web.Request) -> web.Response:
        return await self._answered(http, may_change=True)

    async def _on_validate(self, http: web.Request) -> web.Response:
        return await self._answered(http, may_change=False)

    async def _answered(self, http: web.Request, *, may_change: bool) -> web.Response:
        """Wait for a turn, read and answer, all within the time that the API server waits."""
        try:
            async with asyncio.timeout(self._settings.review_timeout_s), self._turns:
                with UNDER_WAY.track_inprogress():
                    return self._reviewed(await http.read(), may_change=may_change)
        except TimeoutError:
            return web.Response(status=503, text="There is too much to do. Try again in a moment.\n")

    def _reviewed(self, body: bytes, *, may_change: bool) -> web.Response:
        began_s = perf_counter()
        try:
            review = read_review(orjson.loads(body))
        except (orjson.JSONDecodeError, ReviewError) as error:
            return web.Response(status=400, text=f"{error} Send what an API server sends to a webhook.\n")
        resource = review.plural if review.plural in RULES else OTHER
        verdict = self._decide(review)
        if verdict is None:
            REVIEWS.labels(resource, "not-ready").inc()
            return web.Response(status=503, text=NOT_READY)
        if not may_change:
            verdict = verdict._replace(patch=())
        _count(resource, verdict)
        told = orjson.dumps(answer(review.uid, verdict))
        LATENCY.labels(resource).observe(perf_counter() - began_s)
        return web.Response(body=told, content_type="application/json")


def _count(resource: str, verdict: Verdict) -> None:
    REVIEWS.labels(resource, "allowed" if verdict.is_allowed else "refused").inc()
    if not verdict.is_allowed:
        REFUSALS.labels(resource, verdict.reason).inc()
