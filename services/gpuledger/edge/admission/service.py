"""The `admission` service: webhooks that check pods, pools and GPUDevices before the API server stores them.

Every replica folds the ledger, keeps the certificates and webhook configurations, and answers; nothing is left to a
leader. It begins at the last snapshot of its cache, which any replica has written, and answers nothing before it has
read the ledger to the end that it had at the start. While ledger or database are away it answers from its cache. An
event that does not fold stops the answers, because the cache would have a hole.
"""

import asyncio
from typing import NamedTuple

import structlog

from gpuledger.api.kinds import CONTROLLER_TLS_SECRET
from gpuledger.edge.admission.cache import AdmissionCache, CacheProjection
from gpuledger.edge.admission.caller_token import CallerTokens, caller_token
from gpuledger.edge.admission.metrics import EXPIRES, READY
from gpuledger.edge.admission.recorder import UseRecorder
from gpuledger.edge.admission.rules.break_glass import name_of, use_of
from gpuledger.edge.admission.rules.decide import decide
from gpuledger.edge.admission.server import WebhookServer
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.edge.admission.webhook_configuration import configurations
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.webhooks.certificates.authority import Pair
from gpuledger.edge.webhooks.certificates.rotation import CertificateRotation, KeptWebhooks, ServedCertificate
from gpuledger.edge.webhooks.configuration import Configuration
from gpuledger.edge.webhooks.serving.review import AdmissionRequest, AdmissionResponse
from gpuledger.edge.webhooks.settings import WebhookAddress
from gpuledger.events.position import ORIGIN, Offset, is_after
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import LedgerUnavailableError, LogChangedError
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.fold import Fold
from gpuledger.projection.kept_fold import KeptFold
from gpuledger.runtime.backoff import Jitter, Retries, system_jitter
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.tasks import run_until_one_fails

log = structlog.get_logger("gpuledger.admission")


class AdmissionHealth(NamedTuple):
    """`state` is starting, folding, answering or stopped; `reason` is what is wrong, though the service may go on.

    `url` is where the webhooks listen.
    """

    state: str
    position: Offset
    url: str | None
    reason: str | None

    @property
    def is_ready(self) -> bool:
        """Whether the service answers reviews."""
        return self.state == "answering"


def kept_webhooks(settings: AdmissionSettings, address: WebhookAddress, callers: CallerTokens) -> KeptWebhooks:
    """The webhooks as they are kept: callers with the token of an authority are accepted once it is configured."""

    def configured(authority: Pair) -> list[Configuration]:
        token = caller_token(authority)
        callers.accept(token)
        return configurations(settings, address, authority.bundle, token)

    return KeptWebhooks(CONTROLLER_TLS_SECRET, address, configured)


class AdmissionService:
    """The webhooks with all that they need; `run` it, and ask for its `health`."""

    def __init__(
        self,
        ledger: Ledger,
        client: KubeClient,
        settings: AdmissionSettings | None = None,
        *,
        database_url: str | None = None,
        clock: Clock = system_clock,
        jitter: Jitter = system_jitter,
    ) -> None:
        self._ledger = ledger
        self._client = client
        self._settings = settings or AdmissionSettings()
        self._clock = clock
        self._jitter = jitter
        self._certificate = ServedCertificate(EXPIRES)
        self._callers = CallerTokens()
        projection = CacheProjection(self._settings.namespace, self._settings.sharing)
        self._kept = KeptFold(projection, ledger, database_url, self._settings.snapshots)
        self._uses = UseRecorder(ledger, self._settings, clock, jitter)
        self._cache: AdmissionCache | None = None
        self._position = ORIGIN
        self._url: str | None = None
        self._rotation: CertificateRotation | None = None
        self._stopped: str | None = None
        self._interrupted: str | None = None

    def health(self) -> AdmissionHealth:
        """The state of the service."""
        problem = self._rotation.problem if self._rotation else None
        return AdmissionHealth(self._state(), self._position, self._url, self._stopped or problem or self._interrupted)

    @property
    def is_configured(self) -> bool:
        """Whether the API server has the webhook configurations, with the authorities to trust."""
        return self._rotation is not None and self._rotation.rounds > 0

    def _state(self) -> str:
        if self._stopped is not None:
            return "stopped"
        if self._cache is None:
            return "folding"
        return "answering" if self._certificate.shown else "starting"

    async def run(self) -> None:
        """Run until cancelled, recovering from servers that go away.

        Raises:
            ListenError: the address in the settings cannot be listened on.
        """
        server = WebhookServer(self.decide, self._settings, self.watch, self._callers)
        try:
            async with server.serving(self._certificate.context) as url:
                self._url = url
                address = self._settings.address or WebhookAddress(url=url)
                self._rotation = CertificateRotation(
                    self._client,
                    self._ledger.identity.ledger_id,
                    self._certificate,
                    kept_webhooks(self._settings, address, self._callers),
                    self._settings,
                    self._clock,
                    self._jitter,
                )
                work = [self._rotation.run(), self._follow(), self._uses.run(), self._kept.run()]
                await run_until_one_fails(work)
        finally:
            await self._uses.drain()

    def decide(self, request: AdmissionRequest) -> AdmissionResponse | None:
        """The response by the cache as it is now; None while there is none."""
        return None if self._cache is None else decide(request, self._cache)

    def watch(self, request: AdmissionRequest) -> None:
        """Have it recorded if a request is a use of the break-glass group, even while there is no cache."""
        use = use_of(request, self._cache, self._settings.namespace)
        if use is not None:
            self._uses.add(request.uid, request.plural, name_of(request), use)

    async def _follow(self) -> None:
        retries, fold = Retries(self._settings.backoff, self._jitter), None
        while True:
            begun = self._position
            try:
                fold = fold or await self._kept.load()
                await self._fold_all(fold)
            except LedgerUnavailableError as error:
                if is_after(self._position, begun):
                    retries.reset()
                self._interrupted = str(error)
                pause_s = retries.pause_s()
                log.warning("admission.interrupted", reason=str(error), retry_s=round(pause_s, 3))
            except (ProjectionError, LogChangedError) as error:
                fold, self._cache, self._stopped = None, None, str(error)
                pause_s = self._settings.stopped_retry_s
                log.error("admission.stopped", reason=self._stopped, retry_s=pause_s)
            READY.set(self._cache is not None)
            await asyncio.sleep(pause_s)

    async def _fold_all(self, fold: Fold) -> None:
        """Fold to the head, then what is recorded later, until cancelled."""
        if self._cache is None:
            with seldom_collected():
                async for messages in self._ledger.history(after=fold.sequence, until=await self._ledger.head()):
                    self._apply(fold, messages)
            assert isinstance(fold.state, AdmissionCache)
            self._cache, self._stopped = fold.state, None
            READY.set(1)
            log.info("admission.answering", position=fold.sequence)
        async with self._ledger.read(fold.sequence, anchor=self._kept.anchor(fold)) as reader:
            self._interrupted = None
            while True:
                self._apply(fold, await reader.next_batch(self._settings.messages_per_batch))

    def _apply(self, fold: Fold, messages: list[Message]) -> None:
        fold.apply_all(messages)
        self._position = fold.sequence
        self._kept.folded(fold)
