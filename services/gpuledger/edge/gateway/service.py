"""The `gateway` service: takes reports of health monitors over TCP, by NVSentinel's `PlatformConnector`.

An answer means that the ledger has the reports. Any number of replicas serve side by side.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final, NamedTuple, NoReturn, TypeAlias

import grpc.aio
import structlog
from google.protobuf.empty_pb2 import Empty

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.cards import NodeCards
from gpuledger.edge.gateway.check_reports import allowed_attempts, take_results
from gpuledger.edge.gateway.checked_pods import CheckedPods
from gpuledger.edge.gateway.decide import (
    Reporter,
    TokenRules,
    bearer_token,
    node_of,
    reporter_of_certificate,
    reporter_of_token,
)
from gpuledger.edge.gateway.metrics import REPORTS
from gpuledger.edge.gateway.pod_facts import PodFacts
from gpuledger.edge.gateway.publisher import ReportPublisher
from gpuledger.edge.gateway.recall import Recall
from gpuledger.edge.gateway.recorder import GatewayRecorder, ReportOf
from gpuledger.edge.gateway.serving import TlsMaterial, certificate_names, serving
from gpuledger.edge.gateway.tokens import TokenReviews
from gpuledger.edge.kube.client import KubeClient
from gpuledger.healthreports.check_metrics import CheckResults
from gpuledger.healthreports.coalescing import ReportResult
from gpuledger.healthreports.errors import HealthReportError, InvalidReportError, NotDurableError
from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from gpuledger.healthreports.protocol import REFUSALS, streamed
from gpuledger.healthreports.rates import ReporterRates
from gpuledger.healthreports.translate import ReportContext, places, translate_event
from gpuledger.ledger.api import Ledger
from gpuledger.runtime.backoff import Jitter, system_jitter
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.gateway_settings import GatewaySettings
from gpuledger.runtime.tasks import end, run_until_one_ends

AT_ONCE_MAX: Final = 32
"""After so many events of a request other requests have their turn."""

log = structlog.get_logger("gpuledger.gateway")

Call: TypeAlias = "grpc.aio.ServicerContext[HealthEvents, Empty]"


class Ports(NamedTuple):
    """Where a gateway serves: clients with tokens, and clients with certificates."""

    tokens: int | None
    certificates: int | None


class HealthGateway:
    """The gateway of one process; `run` it. `ports` are set while it serves."""

    def __init__(
        self,
        ledger: Ledger,
        kube: KubeClient,
        settings: GatewaySettings,
        bounds: GatewayBounds | None = None,
        *,
        clock: Clock = system_clock,
        monotonic: Callable[[], float] | None = None,
        jitter: Jitter = system_jitter,
    ) -> None:
        self.ports: Ports | None = None
        self._settings = settings
        self._bounds = bounds = bounds or GatewayBounds()
        self._clock = clock
        self._monotonic = monotonic = monotonic or asyncio.get_running_loop().time
        self._publisher = ReportPublisher(ledger, bounds, jitter)
        self._recorder = GatewayRecorder(self._publisher, bounds, clock=clock, monotonic=monotonic)
        self._pods = CheckedPods()
        self._check_results = CheckResults()
        self._pod_facts = PodFacts(ledger, self._pods, bounds, clock)
        self._recall = Recall(ledger, self._recorder, self._pods, bounds, clock)
        self._cards = NodeCards(ledger, bounds, monotonic)
        self._reviews = TokenReviews(kube, settings.audience, bounds, monotonic)
        self._rules = TokenRules(
            settings.audience, settings.reporters, settings.cluster_reporters, settings.preflight_namespaces
        )
        self._rates = ReporterRates(bounds.rates)
        self._material = TlsMaterial(settings.tls)
        self._reason = ""
        """Why a report was refused last; it is logged once."""

    @property
    def trouble(self) -> str:
        """Why it takes no reports at the moment; empty where it does."""
        if self.ports is None:
            return "it does not serve yet"
        return self._publisher.trouble

    async def run(self, on_serving: Callable[[Ports], None] = lambda _: None) -> None:
        """Serve until cancelled.

        Raises:
            ListenError: an address cannot be listened on.
            LedgerError: the ledger cannot be read.
        """
        await self._pod_facts.catch_up()
        await self._recall.catch_up()
        publishing = asyncio.create_task(self._publisher.run())
        try:
            async with AsyncExitStack() as stack:
                self.ports = Ports(await self._by_token(stack), await self._by_certificate(stack))
                on_serving(self.ports)
                await run_until_one_ends(
                    self._pod_facts.run(), self._recall.run(), self._close_windows(), _ended(publishing)
                )
        finally:
            self.ports = None
            self._recorder.flush()
            await end([publishing])
            await self._publisher.drain()

    async def _by_token(self, stack: AsyncExitStack) -> int | None:
        settings = self._settings
        if settings.listen is None:
            return None
        served = serving(
            settings.listen, self._material, streamed(self._occurred_by_token), self._bounds, by_certificate=False
        )
        return await stack.enter_async_context(served)

    async def _by_certificate(self, stack: AsyncExitStack) -> int | None:
        settings = self._settings
        if settings.listen_mtls is None:
            return None
        served = serving(
            settings.listen_mtls, self._material, streamed(self._occurred_by_certificate), self._bounds,
            by_certificate=True,
        )  # fmt: skip
        return await stack.enter_async_context(served)

    async def _close_windows(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._bounds.tick_s)
            self._recorder.close_due()

    async def _occurred_by_token(self, requests: AsyncIterator[HealthEvents], context: Call) -> Empty:
        async def reporter() -> Reporter:
            token = bearer_token(dict(context.invocation_metadata() or ()))
            return reporter_of_token(await self._reviews.identity(token), self._rules)

        return await self._answer(requests, context, reporter())

    async def _occurred_by_certificate(self, requests: AsyncIterator[HealthEvents], context: Call) -> Empty:
        async def reporter() -> Reporter:
            names = certificate_names(context.auth_context(), self._clock())
            return reporter_of_certificate(names, self._settings.certificates)

        return await self._answer(requests, context, reporter())

    async def _answer(
        self, requests: AsyncIterator[HealthEvents], context: Call, reporter: Awaitable[Reporter]
    ) -> Empty:
        """Answer a call: nothing is read of who may not report, and nobody holds a call for long without sending."""
        request = HealthEvents()
        try:
            found = await reporter
            request = await self._read(requests)
            results = await self._take(request, found)
        except HealthReportError as error:
            name, status = REFUSALS[type(error)]
            REPORTS.labels(name).inc(max(1, len(request.events)))
            if str(error) != self._reason:
                log.warning("gateway.refused", status=status.name, peer=context.peer(), reason=str(error))
            self._reason = str(error)
            await context.abort(status, str(error))
        for result in results:
            REPORTS.labels(result.value).inc()
        return Empty()

    async def _read(self, requests: AsyncIterator[HealthEvents]) -> HealthEvents:
        """The request of a call, which has one.

        Raises:
            NotDurableError: it does not come in time.
            InvalidReportError: there is none.
        """
        try:
            async with asyncio.timeout(self._bounds.request_timeout_s):
                return await anext(requests)
        except TimeoutError as error:
            raise NotDurableError(
                f"The request did not arrive within {self._bounds.request_timeout_s:g} s; send it again."
            ) from error
        except StopAsyncIteration as error:
            raise InvalidReportError("The call has no request. Send one.") from error

    async def _take(self, request: HealthEvents, reporter: Reporter) -> list[ReportResult]:
        self._rates.take(reporter.name, len(request.events), self._monotonic())
        now, reports, contexts = self._clock(), [], {}
        pod = reporter.checked
        attempts = {} if pod is None else allowed_attempts(self._pods, pod, request, now)
        for number, (place, event) in enumerate(places(request)):
            node = node_of(event.nodeName, place, reporter)
            if node not in contexts:
                contexts[node] = ReportContext(node, await self._cards.of(node), reporter.name)
            reports.append(ReportOf(node, translate_event(event, place, contexts[node], now)))
            if number % AT_ONCE_MAX == AT_ONCE_MAX - 1:
                await asyncio.sleep(0)
        if pod is not None:
            take_results(self._pods, attempts, reports)
        results = await self._recorder.take(reports)
        for one, result in zip(reports, results, strict=True):
            self._check_results.count(one.node, [(one.report.data, result)])
        return results


async def _ended(task: "asyncio.Task[None]") -> None:
    """Wait for a task, which goes on if the wait is cancelled: requests under way need it to the end."""
    await asyncio.shield(task)
