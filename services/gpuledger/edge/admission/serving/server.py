"""The HTTPS server of the webhooks: it bounds what comes in, and leaves every decision to the rules.

While nothing can be decided it answers 503, which an API server treats as the webhook's failure policy says.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from time import perf_counter

import orjson
from aiohttp import web

from gpuledger.edge.admission.certificates.caller_token import CallerTokens
from gpuledger.edge.admission.certificates.webhook_configuration import BREAK_GLASS_PATH, MUTATE_PATH, VALIDATE_PATH
from gpuledger.edge.admission.errors import ReviewError
from gpuledger.edge.admission.metrics import BREAK_GLASS_UNRECORDED, LATENCY, REFUSALS, REVIEWS, UNDER_WAY
from gpuledger.edge.admission.rules.decide import RULES
from gpuledger.edge.admission.serving.connections import accepting
from gpuledger.edge.admission.serving.review import (
    ALLOWED,
    AdmissionRequest,
    AdmissionResponse,
    read_request,
    review_document,
)
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.runtime.telemetry_http import parse_address

Decide = Callable[[AdmissionRequest], AdmissionResponse | None]
"""Decides about a request; None while nothing can be decided."""

Watch = Callable[[AdmissionRequest], None]
"""Takes note of a request by a member of the break-glass group, which is allowed in any case."""

NOT_READY = "Admission has not read the ledger to its end yet. Try again in a moment.\n"
TOO_BUSY = "Too many reviews are under way. Try again in a moment.\n"
NO_CALLER = "Only API servers call this, by the path in the webhook configuration.\n"
OTHER = "other"
"""What metrics call a resource without a rule."""


class WebhookServer:
    """Answers AdmissionReviews."""

    def __init__(
        self,
        decide: Decide,
        settings: AdmissionSettings,
        watch: Watch = lambda _request: None,
        callers: CallerTokens | None = None,
    ) -> None:
        self._decide = decide
        self._settings = settings
        self._watch = watch
        self._callers = callers or CallerTokens()
        self._slots = asyncio.Semaphore(settings.reviews_at_once_max)

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None) -> AsyncIterator[str]:
        """Serve for the length of the block; gives the URL, without a path.

        Raises:
            ListenError: the address cannot be listened on.
        """
        app = web.Application(client_max_size=self._settings.review_bytes_max)
        app.router.add_post(MUTATE_PATH, self._mutate)
        app.router.add_post(VALIDATE_PATH, self._validate)
        app.router.add_post(f"{BREAK_GLASS_PATH}/{{token}}", self._break_glass)
        host, port = parse_address(self._settings.listen)
        runner = web.AppRunner(
            app, access_log=None,
            shutdown_timeout=self._settings.shutdown_timeout_s, keepalive_timeout=self._settings.idle_timeout_s,
        )  # fmt: skip
        await runner.setup()
        try:
            assert runner.server is not None
            async with accepting(runner.server, host, port, context, self._settings) as (name, number):
                shown = f"[{name}]" if ":" in name else name
                yield f"{'https' if context else 'http'}://{shown}:{number}"
        finally:
            await runner.cleanup()

    async def _mutate(self, http: web.Request) -> web.Response:
        return await self._in_time(http, self._decide, may_change=True)

    async def _validate(self, http: web.Request) -> web.Response:
        return await self._in_time(http, self._decide, may_change=False)

    async def _break_glass(self, http: web.Request) -> web.Response:
        if http.match_info["token"] not in self._callers:
            BREAK_GLASS_UNRECORDED.labels("unknown-caller").inc()
            return web.Response(status=403, text=NO_CALLER)
        answer = await self._in_time(http, self._watched, may_change=False)
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            BREAK_GLASS_UNRECORDED.labels("busy").inc()
        return answer

    def _watched(self, request: AdmissionRequest) -> AdmissionResponse:
        self._watch(request)
        return ALLOWED

    async def _in_time(self, http: web.Request, decide: Decide, *, may_change: bool) -> web.Response:
        """Wait for a slot, read and answer, all within the time that the API server waits."""
        try:
            async with asyncio.timeout(self._settings.review_timeout_s), self._slots:
                with UNDER_WAY.track_inprogress():
                    return self._review(await http.read(), decide, may_change=may_change)
        except TimeoutError:
            return web.Response(status=503, text=TOO_BUSY)

    def _review(self, body: bytes, decide: Decide, *, may_change: bool) -> web.Response:
        began_s = perf_counter()
        try:
            request = read_request(orjson.loads(body))
        except (orjson.JSONDecodeError, ReviewError) as error:
            return web.Response(status=400, text=f"{error} Send what an API server sends to a webhook.\n")
        resource = request.plural if request.plural in RULES else OTHER
        response = decide(request)
        if response is None:
            REVIEWS.labels(resource, "not-ready").inc()
            return web.Response(status=503, text=NOT_READY)
        if not may_change:
            response = response._replace(patch=())
        REVIEWS.labels(resource, "allowed" if response.is_allowed else "refused").inc()
        if not response.is_allowed:
            REFUSALS.labels(resource, response.reason).inc()
        document = orjson.dumps(review_document(request.uid, response))
        LATENCY.labels(resource).observe(perf_counter() - began_s)
        return web.Response(body=document, content_type="application/json")
