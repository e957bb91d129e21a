"""The paths of admission, and what its metrics count of the answers; every decision is left to the rules."""

import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus

from aiohttp import web

from gpuledger.edge.admission.caller_token import CallerTokens
from gpuledger.edge.admission.metrics import (
    BREAK_GLASS_UNRECORDED,
    CONNECTIONS_REFUSED,
    LATENCY,
    REFUSALS,
    REVIEWS,
    UNDER_WAY,
)
from gpuledger.edge.admission.rules.decide import RULES
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.edge.admission.webhook_configuration import BREAK_GLASS_PATH, MUTATE_PATH, VALIDATE_PATH
from gpuledger.edge.webhooks.serving.review import ALLOWED, AdmissionRequest, AdmissionResponse
from gpuledger.edge.webhooks.serving.server import ReviewServer, ServerMetrics

Decide = Callable[[AdmissionRequest], AdmissionResponse | None]
"""Decides about a request; None while nothing can be decided."""

Watch = Callable[[AdmissionRequest], None]
"""Takes note of a request by a member of the break-glass group, which is allowed in any case."""

NOT_READY = "Admission has not read the ledger to its end yet. Try again in a moment.\n"
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
        self._watch = watch
        self._callers = callers or CallerTokens()
        self._server = ReviewServer(settings, ServerMetrics(UNDER_WAY, CONNECTIONS_REFUSED, _observe))

    def serving(self, context: ssl.SSLContext | None) -> AbstractAsyncContextManager[str]:
        """Serve for the length of the block; gives the URL, without a path.

        Raises:
            ListenError: the address cannot be listened on.
        """
        paths = {
            MUTATE_PATH: self._mutate,
            VALIDATE_PATH: self._validate,
            f"{BREAK_GLASS_PATH}/{{token}}": self._break_glass,
        }
        return self._server.serving(context, paths)

    async def _mutate(self, http: web.Request) -> web.Response:
        return await self._server.answer(http, self._reviewed, NOT_READY)

    async def _validate(self, http: web.Request) -> web.Response:
        return await self._server.answer(http, self._validated, NOT_READY)

    async def _break_glass(self, http: web.Request) -> web.Response:
        if http.match_info["token"] not in self._callers:
            BREAK_GLASS_UNRECORDED.labels("unknown-caller").inc()
            return web.Response(status=403, text=NO_CALLER)
        answer = await self._server.answer(http, self._watched, NOT_READY)
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            BREAK_GLASS_UNRECORDED.labels("busy").inc()
        return answer

    async def _watched(self, request: AdmissionRequest) -> AdmissionResponse:
        self._watch(request)
        return _counted(request, lambda _: ALLOWED) or ALLOWED

    async def _validated(self, request: AdmissionRequest) -> AdmissionResponse | None:
        response = await self._reviewed(request)
        return response and response._replace(patch=())

    async def _reviewed(self, request: AdmissionRequest) -> AdmissionResponse | None:
        return _counted(request, self._decide)


def _counted(request: AdmissionRequest, decide: Decide) -> AdmissionResponse | None:
    resource, response = _resource(request), decide(request)
    if response is None:
        REVIEWS.labels(resource, "not-ready").inc()
        return None
    REVIEWS.labels(resource, "allowed" if response.is_allowed else "refused").inc()
    if not response.is_allowed:
        REFUSALS.labels(resource, response.reason).inc()
    return response


def _observe(request: AdmissionRequest, seconds: float) -> None:
    LATENCY.labels(_resource(request)).observe(seconds)


def _resource(request: AdmissionRequest) -> str:
    return request.plural if request.plural in RULES else OTHER
