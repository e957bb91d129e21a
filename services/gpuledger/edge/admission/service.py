"""Admission's life: follow the ledger, keep the certificates and configurations, and answer API servers.

Every replica does all of it; there is nothing that only one may do. Nothing is answered before the ledger has been read
to the end that it had at the start. While the ledger is away, answers follow from what was known last. An
event that does not fold ends the answering, because from then on what is known would have a hole.
"""

import asyncio
from typing import NamedTuple

import structlog

from gpuledger.edge.admission.cache import AdmissionCache, CacheProjection
from gpuledger.edge.admission.certificates.rotation import Certificates, Keeper
from gpuledger.edge.admission.metrics import READY
from gpuledger.edge.admission.rules.decide import decide
from gpuledger.edge.admission.serving.review import Review, Verdict
from gpuledger.edge.admission.serving.server import Server
from gpuledger.edge.admission.settings import AdmissionSettings, Reached
from gpuledger.edge.kube.client import KubeClient
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.fold import Fold
from gpuledger.projection.skips import skipped_positions
from gpuledger.runtime.backoff import Jitter, Retries, system_jitter
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.tasks import run_until_one_fails

log = structlog.get_logger("gpuledger.admission")


class AdmissionHealth(NamedTuple):
    """`state` is starting, folding, answering or stopped; `reason` is what is wrong, though it may go on.

    `url` is where the webhooks listen.
    """

    state: str
    position: int
    url: str | None
    reason: str | None

    @property
    def is_ready(self) -> bool:
        """Whether reviews are answered."""
        return self.state == "answering"


class Admission:
    """The webhooks; `run` them, and ask for their `health`."""

    def __init__(
        self,
        ledger: Ledger,
        client: KubeClient,
        settings: AdmissionSettings | None = None,
        *,
        clock: Clock = system_clock,
        jitter: Jitter = system_jitter,
    ) -> None:
        self._ledger = ledger
        self._client = client
        self._settings = settings or AdmissionSettings()
        self._clock = clock
        self._jitter = jitter
        self._certificates = Certificates()
        self._cache: AdmissionCache | None = None
        self._position = 0
        self._url: str | None = None
        self._keeper: Keeper | None = None
        self._stopped: str | None = None
        self._interrupted: str | None = None

    def health(self) -> AdmissionHealth:
        """How it stands."""
        kept = self._keeper.problem if self._keeper else None
        return AdmissionHealth(self._state(), self._position, self._url, self._stopped or kept or self._interrupted)

    @property
    def is_kept(self) -> bool:
        """Whether the API server was told whom to ask, and whom to trust."""
        return self._keeper is not None and self._keeper.kept > 0

    def _state(self) -> str:
        if self._stopped is not None:
            return "stopped"
        if self._cache is None:
            return "folding"
        return "answering" if self._certificates.shown else "starting"

    async def run(self) -> None:
        """Run until cancelled, recovering from servers that go away.

        Raises:
            ListenError: nobody can listen at the address in the settings.
        """
        server = Server(self.decide, self._settings)
        async with server.serving(self._certificates.context) as url:
            self._url = url
            reached = self._settings.reached or Reached(url=url)
            self._keeper = Keeper(self._client, self._certificates, reached, self._settings, self._clock, self._jitter)
            await run_until_one_fails([self._keeper.run(), self._follow()])

    def decide(self, review: Review) -> Verdict | None:
        """The verdict, by what is known now; None while too little is."""
        return None if self._cache is None else decide(review, self._cache)

    async def _follow(self) -> None:
        retries, fold = Retries(self._settings.backoff, self._jitter), None
        while True:
            begun = self._position
            try:
                fold = fold or await self._begun()
                await self._followed(fold)
            except LedgerUnavailableError as error:
                if self._position > begun:
                    retries.reset()
                self._interrupted = str(error)
                pause_s = retries.pause_s()
                log.warning("admission.interrupted", reason=str(error), retry_s=round(pause_s, 3))
            except ProjectionError as error:
                fold, self._cache, self._stopped = None, None, str(error)
                pause_s = self._settings.stopped_retry_s
                log.error("admission.stopped", reason=self._stopped, retry_s=pause_s)
            READY.set(self._cache is not None)
            await asyncio.sleep(pause_s)

    async def _begun(self) -> Fold:
        projection = CacheProjection(self._settings.namespace)
        return Fold(projection, self._ledger.generation, skipped=await skipped_positions(self._ledger))

    async def _followed(self, fold: Fold) -> None:
        """Fold to the head, then what comes, for ever."""
        if self._cache is None:
            with seldom_collected():
                async for messages in self._ledger.history(after=fold.sequence, until=await self._ledger.head()):
                    self._take(fold, messages)
            assert isinstance(fold.state, AdmissionCache)
            self._cache, self._stopped = fold.state, None
            READY.set(1)
            log.info("admission.answering", position=fold.sequence)
        async with self._ledger.read(after=fold.sequence) as reader:
            self._interrupted = None
            while True:
                self._take(fold, await reader.next_batch(self._settings.messages_per_batch))

    def _take(self, fold: Fold, messages: list[Message]) -> None:
        fold.apply_all(messages)
        self._position = fold.sequence
