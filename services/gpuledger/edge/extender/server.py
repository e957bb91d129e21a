"""The HTTP server of the extender: it bounds what comes in, and only a leader answers.

kube-scheduler takes every status but 200 for a failure, and schedules the pod again later.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import Any, Final, Protocol

import orjson
from aiohttp import web

from gpuledger.edge.extender import metrics
from gpuledger.edge.extender.errors import ArgumentsError, BindError
from gpuledger.edge.extender.settings import ExtenderSettings
from gpuledger.edge.extender.wire import BindingArgs, binding_document, read_binding
from gpuledger.edge.webhooks.serving.server import ReviewServer, ServerMetrics

FILTER: Final = "filter"
PRIORITIZE: Final = "prioritize"
PREEMPT: Final = "preempt"
BIND: Final = "bind"

NOT_LEADING: Final = (
    "This extender does not lead, or has not read the ledger to its end yet. Send requests to the one that is ready.\n"
)
TOO_BUSY: Final = "Too many requests are under way. Try again in a moment.\n"

Document = dict[str, Any] | list[dict[str, Any]]


class Questions(Protocol):
    """What a leader answers at once."""

    def filter(self, document: object) -> dict[str, Any]:
        """An ExtenderFilterResult."""

    def prioritize(self, document: object) -> list[dict[str, Any]]:
        """A HostPriorityList."""

    def preempt(self, document: object) -> dict[str, Any]:
        """An ExtenderPreemptionResult."""


class Leading(Protocol):
    """A leader that has folded the ledger to its head."""

    @property
    def questions(self) -> Questions:
        """What is answered at once."""

    async def bind(self, args: BindingArgs) -> None:
        """Bind a pod. Raises BindError."""


class ExtenderServer:
    """Serves the four verbs; `leader` gives the leader while this process is it."""

    def __init__(self, leader: Callable[[], Leading | None], settings: ExtenderSettings) -> None:
        self._leader = leader
        self._settings = settings
        self._server = ReviewServer(
            settings.serving,
            ServerMetrics(metrics.UNDER_WAY, metrics.CONNECTIONS_REFUSED, lambda _request, _seconds: None),
        )

    def serving(self, context: ssl.SSLContext | None) -> AbstractAsyncContextManager[str]:
        """Serve for the length of the block; gives the URL, without a path.

        Raises:
            ListenError: the address cannot be listened on.
        """
        handlers = {
            FILTER: self._answering(FILTER, lambda leader, document: leader.questions.filter(document)),
            PRIORITIZE: self._answering(PRIORITIZE, lambda leader, document: leader.questions.prioritize(document)),
            PREEMPT: self._answering(PREEMPT, lambda leader, document: leader.questions.preempt(document)),
            BIND: self._bind,
        }
        return self._server.serving(context, {f"/{verb}": handler for verb, handler in handlers.items()})

    def _answering(
        self, verb: str, answer: Callable[[Leading, object], Document]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            async def at_once(leader: Leading, document: object) -> Document:
                return answer(leader, document)

            try:
                async with asyncio.timeout(self._settings.answer_timeout_s), self._server.slots:
                    return await self._answered(verb, http, at_once)
            except TimeoutError:
                return _counted(verb, "busy", 503, TOO_BUSY)

        return handle

    async def _bind(self, http: web.Request) -> web.Response:
        async def bound(leader: Leading, document: object) -> Document:
            try:
                await leader.bind(read_binding(document))
            except BindError as error:
                metrics.ANSWERS.labels(BIND, "refused").inc()
                return binding_document(f"{error.reason}: {error}")
            return binding_document()

        return await self._answered(BIND, http, bound)

    async def _answered(
        self, verb: str, http: web.Request, answer: Callable[[Leading, object], Awaitable[Document]]
    ) -> web.Response:
        leader = self._leader()
        if leader is None:
            return _counted(verb, "not-leading", 503, NOT_LEADING)
        with metrics.UNDER_WAY.track_inprogress():
            body = await http.read()
            began_s = perf_counter()
            try:
                document = await answer(leader, orjson.loads(body))
            except (orjson.JSONDecodeError, ArgumentsError) as error:
                return _counted(verb, "unreadable", 400, f"{error} Send what kube-scheduler sends to an extender.\n")
        metrics.ANSWERS.labels(verb, "answered").inc()
        metrics.LATENCY.labels(verb).observe(perf_counter() - began_s)
        return web.Response(body=orjson.dumps(document), content_type="application/json")


def _counted(verb: str, outcome: str, status: int, text: str) -> web.Response:
    metrics.ANSWERS.labels(verb, outcome).inc()
    return web.Response(status=status, text=text)
