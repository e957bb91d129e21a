"""Keeps webhooks' TLS certificate valid, and publishes the CA bundle in their configurations.

It checks everything again and again, so that it takes over what another replica renewed and reverts what somebody
changed, for as long as the cluster belongs to its ledger; the status writer claims it. Trust comes before use: the
bundle is published before a certificate is shown that needs it.
"""

import asyncio
import ssl
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from prometheus_client import Gauge

from gpuledger.api.kinds import CA_SECRET, Resource
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import KubeError, NotFoundError, UnclaimedClusterError
from gpuledger.edge.kube.owner import owned
from gpuledger.edge.kube.ownership import confirm_owner
from gpuledger.edge.webhooks.certificates.authority import WEBHOOKS, Pair, Profile, authority_at, expires_at, serving_at
from gpuledger.edge.webhooks.certificates.secrets import stored_pair
from gpuledger.edge.webhooks.configuration import Configuration, server_names
from gpuledger.edge.webhooks.settings import ServingSettings, WebhookAddress
from gpuledger.runtime.backoff import Jitter, Retries
from gpuledger.runtime.clock import Clock

_PRIVATE_MODE: Final = 0o600

BEGIN_QUIETLY_S: Final = 60.0
"""For how long it is no warning that the cluster is not claimed, or the namespace not there, when a service begins."""

NOT_BEGUN: Final = (UnclaimedClusterError, NotFoundError)
"""What others have to do first."""

log = structlog.get_logger("gpuledger.webhooks")


class ServedCertificate:
    """The certificate that a server shows; `expires` gets when it does, in seconds since 1970.

    Later connections get a new certificate from `context` without a restart.
    """

    def __init__(self, expires: Gauge) -> None:
        self._expires = expires
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.shown: Pair | None = None

    def show(self, pair: Pair) -> None:
        """Show this one from now on. The library reads only files, so the pair is in one for a moment."""
        if pair == self.shown:
            return
        with tempfile.TemporaryDirectory(prefix="gpuledger-webhooks-") as directory:
            path = Path(directory, "tls.pem")
            path.touch(_PRIVATE_MODE)
            path.write_bytes(pair.key + pair.certificate)
            self.context.load_cert_chain(path)
        self.shown = pair
        self._expires.set(expires_at(pair).timestamp())


class KeptWebhooks(NamedTuple):
    """The webhooks of a service: the Secret of their certificate, and their configurations for an authority.

    The configurations go with the ClusterRole `owner`; None: they stay until somebody deletes them.
    """

    secret: str
    address: WebhookAddress
    configurations: Callable[[Pair], list[Configuration]]
    profile: Profile = WEBHOOKS
    owner: str | None = None


class CertificateRotation:
    """Renews certificates in their secrets, and applies the webhook configurations."""

    def __init__(
        self,
        client: KubeClient,
        ledger_id: str,
        certificate: ServedCertificate,
        hooks: KeptWebhooks,
        settings: ServingSettings,
        clock: Clock,
        jitter: Jitter,
    ) -> None:
        self._client = client
        self._ledger_id = ledger_id
        self._hooks = hooks
        self._certificate = certificate
        self._settings = settings
        self._clock = clock
        self._jitter = jitter
        self._due = asyncio.Event()
        self.problem: str | None = None
        self.rounds = 0
        """How often everything was checked without an error."""

    async def rotate(self) -> None:
        """Check everything once, and renew or revert what needs it.

        Raises:
            ForeignClusterError: the cluster belongs to another ledger, or to none yet, and nothing was written.
            KubeError: the API server cannot be used.
        """
        now = self._clock()
        await confirm_owner(self._client, self._ledger_id, self._client.url)
        serving, authority = await self._pairs(now)
        if self._certificate.shown is None:
            self._certificate.show(serving)
        for resource, configuration in self._hooks.configurations(authority):
            await self._client.apply(resource, await owned(self._client, configuration, self._hooks.owner), force=True)
        self._certificate.show(serving)
        self.rounds += 1

    async def run(self) -> None:
        """Rotate until cancelled."""
        retries = Retries(self._settings.backoff, self._jitter)
        began = self._clock()
        while True:
            try:
                await self.rotate()
                self.problem = None
                retries.reset()
                pause_s = self._settings.certificates_check_s
            except KubeError as error:
                before, self.problem = self.problem, str(error)
                pause_s = retries.pause_s()
                if not self._has_to_wait(error, began):
                    log.warning(
                        "webhooks.rotation-failed",
                        secret=self._hooks.secret,
                        reason=self.problem,
                        retry_s=round(pause_s, 3),
                    )
                elif self.problem != before:
                    log.info("webhooks.waiting", secret=self._hooks.secret, reason=self.problem)
            await self._pause(pause_s)

    def rotate_soon(self) -> None:
        """Check everything at once, because the configurations are others now."""
        self._due.set()

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._due.wait()
        self._due.clear()

    def _has_to_wait(self, error: KubeError, began: datetime) -> bool:
        """Whether others have not begun yet, as happens when everything is started together."""
        is_new = not self.rounds and self._clock() - began < timedelta(seconds=BEGIN_QUIETLY_S)
        return is_new and isinstance(error, NOT_BEGUN)

    async def _pairs(self, now: datetime) -> tuple[Pair, Pair]:
        """The certificate to show, and the authority, with all that are to be trusted."""
        namespace, hooks = self._settings.namespace, self._hooks
        names = server_names(namespace, hooks.address)
        authority = await stored_pair(self._client, namespace, CA_SECRET, lambda current: authority_at(current, now))
        serving = await stored_pair(
            self._client,
            namespace,
            hooks.secret,
            lambda current: serving_at(current, authority, names, now, hooks.profile),
        )
        return serving, authority


async def remove_webhooks(client: KubeClient, configurations: Iterable[tuple[Resource, str]]) -> list[str]:
    """Delete webhook configurations by kind and name, so that no API server waits for webhooks that are gone.

    Returns:
        The kinds of the configurations that existed.

    Raises:
        KubeError: the API server cannot be used.
    """
    removed = []
    for resource, name in configurations:
        try:
            await client.delete(resource, name)
        except NotFoundError:
            continue
        removed.append(resource.kind)
    return removed
