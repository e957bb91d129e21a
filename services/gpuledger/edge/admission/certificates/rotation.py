"""Keeps the webhooks reachable: certificates that hold, shown by the server, and API servers that know whom to trust.

Everything is looked at again and again, so that what another replica renewed is taken over, and what somebody changed
is put right. Trust comes before use: the bundle is applied before a certificate that needs it is shown.
"""

import asyncio
import ssl
import tempfile
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from gpuledger.api.kinds import CA_SECRET, CONTROLLER_TLS_SECRET
from gpuledger.edge.admission.certificates.authority import Pair, authority_at, expires_at, serving_at
from gpuledger.edge.admission.certificates.secrets import kept
from gpuledger.edge.admission.certificates.webhook_configuration import configurations, names_of
from gpuledger.edge.admission.metrics import EXPIRES
from gpuledger.edge.admission.settings import AdmissionSettings, Reached
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import KubeError
from gpuledger.runtime.backoff import Jitter, Retries
from gpuledger.runtime.clock import Clock

_PRIVATE_MODE: Final = 0o600

log = structlog.get_logger("gpuledger.admission")


class Certificates:
    """What the server shows. `context` takes a new certificate without a restart: later connections get it."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.shown: Pair | None = None

    def show(self, pair: Pair) -> None:
        """Show this one from now on. The library reads files only, so it stands in one for a moment."""
        if pair == self.shown:
            return
        with tempfile.TemporaryDirectory(prefix="gpuledger-admission-") as directory:
            path = Path(directory, "tls.pem")
            path.touch(_PRIVATE_MODE)
            path.write_bytes(pair.key + pair.certificate)
            self.context.load_cert_chain(path)
        self.shown = pair
        EXPIRES.set(expires_at(pair).timestamp())


class Keeper:
    """Keeps secrets, configurations and what is shown."""

    def __init__(
        self,
        client: KubeClient,
        certificates: Certificates,
        reached: Reached,
        settings: AdmissionSettings,
        clock: Clock,
        jitter: Jitter,
    ) -> None:
        self._client = client
        self._reached = reached
        self._certificates = certificates
        self._settings = settings
        self._clock = clock
        self._jitter = jitter
        self.problem: str | None = None
        self.kept = 0

    async def keep(self) -> None:
        """Have everything as it should be, once.

        Raises:
            KubeError: the API server cannot be used.
        """
        serving, bundle = await self._pairs(self._clock())
        if self._certificates.shown is None:
            self._certificates.show(serving)
        for resource, configuration in configurations(self._settings, self._reached, bundle):
            await self._client.apply(resource, configuration, force=True)
        self._certificates.show(serving)
        self.kept += 1

    async def run(self) -> None:
        """Keep it so, for ever."""
        retries = Retries(self._settings.backoff, self._jitter)
        while True:
            try:
                await self.keep()
                self.problem = None
                retries.reset()
                pause_s = self._settings.certificates_check_s
            except KubeError as error:
                self.problem = str(error)
                pause_s = retries.pause_s()
                log.warning("admission.not-kept", reason=self.problem, retry_s=round(pause_s, 3))
            await asyncio.sleep(pause_s)

    async def _pairs(self, now: datetime) -> tuple[Pair, bytes]:
        """The certificate to show, and the authorities to trust."""
        namespace = self._settings.namespace
        authority = await kept(self._client, namespace, CA_SECRET, authority_at, now)
        wanted = partial(_serving, authority=authority, names=names_of(namespace, self._reached))
        return await kept(self._client, namespace, CONTROLLER_TLS_SECRET, wanted, now), authority.bundle


def _serving(known: Pair | None, now: datetime, *, authority: Pair, names: tuple[str, ...]) -> Pair:
    return serving_at(known, authority, names, now)
