"""Serves the API over HTTP: routes requests and turns every error into a `Status`.

It decides nothing about objects.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog
from aiohttp import web

from gpuledger.local.kubeapi import answers
from gpuledger.local.kubeapi.access import authorize, caller, extra_of, verb
from gpuledger.local.kubeapi.admission import Admission, ServicePlaces
from gpuledger.local.kubeapi.builtin import BUILTIN
from gpuledger.local.kubeapi.controllers import Controllers
from gpuledger.local.kubeapi.documents import HEALTH_PATHS, Documents
from gpuledger.local.kubeapi.endpoints import ResourceEndpoints
from gpuledger.local.kubeapi.errors import ApiError, PlainError, method_not_allowed
from gpuledger.local.kubeapi.listening import listening
from gpuledger.local.kubeapi.negotiation import negotiate
from gpuledger.local.kubeapi.options import Query, write_options
from gpuledger.local.kubeapi.registry import ResourceRegistry
from gpuledger.local.kubeapi.requests import ApiRequest
from gpuledger.local.kubeapi.store import CHANGES_KEPT_MAX, Store
from gpuledger.local.kubeapi.watching import BOOKMARK_EVERY_S
from gpuledger.local.kubeapi.writing import Writer
from gpuledger.runtime.clock import Clock, NewId, random_id, system_clock

BODY_BYTES_MAX = 3 * 1024 * 1024
"""As on real servers."""

READS = frozenset({"GET", "HEAD"})

SHUTDOWN_S = 1.0
"""The time that open watches get to end when the server stops."""

NAMESPACES_AT_START = ("default", "kube-system", "kube-public", "kube-node-lease")

log = structlog.get_logger("gpuledger.local.kubeapi")


class ApiServer:
    """An in-process Kubernetes API, which starts with the namespaces of every cluster.

    It refuses privileged containers unless `allow_privileged` is set, as kube-apiserver does.
    """

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        new_id: NewId = random_id,
        services: ServicePlaces | None = None,
        changes_kept: int = CHANGES_KEPT_MAX,
        bookmark_every_s: float = BOOKMARK_EVERY_S,
        allow_privileged: bool = False,
    ) -> None:
        self.store = Store(changes_kept)
        self.registry = ResourceRegistry(BUILTIN)
        self._admission = Admission(self.store, self.registry, new_id, services or {})
        self.writer = Writer(
            self.store, self.registry, clock, new_id, self._admission, allow_privileged=allow_privileged
        )
        self.requests = 0
        self._clock = clock
        self._controllers = Controllers(self.store, self.registry, self.writer, clock)
        self._documents = Documents(self.registry)
        self._endpoints = ResourceEndpoints(self.store, self.writer, bookmark_every_s=bookmark_every_s)

    @property
    def watches(self) -> int:
        """The number of open watches."""
        return self._endpoints.watches

    @asynccontextmanager
    async def serving(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        """Serve at an address (port 0: a free one); gives the URL.

        Raises:
            OSError: the address is not available.
        """
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_S, access_log=None, handler_cancellation=True)
        await runner.setup()
        controllers = asyncio.create_task(self._controllers.run())
        try:
            async with self._admission.running():
                await self._make_namespaces()
                async with listening(runner, host, port, tls) as bound_port:
                    yield f"{'https' if tls else 'http'}://{host}:{bound_port}"
        finally:
            self._endpoints.end_watches()
            controllers.cancel()
            with suppress(asyncio.CancelledError):
                await controllers
            await runner.cleanup()

    async def _make_namespaces(self) -> None:
        for name in NAMESPACES_AT_START:
            target = self.registry.target("/api/v1/namespaces")
            request = ApiRequest(target, self._clock())
            options = write_options(Query(), "kube-apiserver", "CreateOptions")
            if self.store.collection(target.resource.key).get("", name) is None:
                await self.writer.create(request, {"metadata": {"name": name}}, options)

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        self.requests += 1
        warnings: list[str] = []
        try:
            return await self._routed(http, warnings)
        except PlainError as error:
            return web.Response(status=error.code, text=error.message, content_type="text/plain", charset="utf-8")
        except ApiError as error:
            return answers.failed(error, warnings)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {BODY_BYTES_MAX}"
            return answers.failed(ApiError(413, "RequestEntityTooLarge", message, {}), warnings)
        except (ConnectionError, web.HTTPException):
            raise
        except Exception as error:
            log.exception("kube.request", path=http.path, method=http.method)
            return answers.failed(ApiError(500, "InternalError", f"Internal error occurred: {error!r}", {}), warnings)

    async def _routed(self, http: web.Request, warnings: list[str]) -> web.StreamResponse:
        accept = http.headers.get("Accept", "")
        document = self._documents.find(http.path, accept, is_verbose="verbose" in http.query)
        if document is not None:
            if http.method not in READS and http.path not in HEALTH_PATHS:
                raise method_not_allowed(http.method.lower())
            return web.Response(body=document.body, headers={"Content-Type": document.content_type})
        groups = http.headers.getall("Impersonate-Group", [])
        who = caller(http.headers.get("Impersonate-User", ""), groups, extra_of(http.headers.items()))
        target = self.registry.target(http.path)
        if who.is_impersonated:
            watches = Query({name: http.query.getall(name) for name in http.query}).flag("watch") or False
            authorize(self.store, who, verb(http.method, target, watches=watches), target)
        request = ApiRequest(target, self._clock(), who.user, who.groups, warnings, who.extra)
        return await self._endpoints.answer(http, request, negotiate(accept))
