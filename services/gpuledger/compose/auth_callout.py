"""Composes the process of the auth callout service: its logins, its metrics and health, and waiting for a server.

It outlives servers that are away, because agents cannot log in without it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.errors import Error as NatsError

from gpuledger.edge.authcallout.decide import LoginRules
from gpuledger.edge.authcallout.issuer_key import read_issuer_key
from gpuledger.edge.authcallout.service import AuthCallout
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.ledger.connect import Connection, Denial, connected, permission_error
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.permissions import CALLOUT_USER
from gpuledger.runtime.backoff import Backoff, Retries, system_jitter
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import CalloutSettings
from gpuledger.runtime.telemetry_http import Health, serving

RETRY: Final = Backoff(first_s=0.2, max_s=10.0)
NAME: Final = "auth callout"
SUBSCRIBED_TIMEOUT_S: Final = 10
ADVICE: Final = (
    f"Log in as {CALLOUT_USER}, with the permissions that `gpuledger nats-config` gives it; "
    "docs/agent-credentials.md describes them."
)

log = structlog.get_logger("gpuledger.authcallout")


class CalloutProcess:
    """The process: it connects, listens, and connects again."""

    def __init__(self, settings: CalloutSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._trouble = "it has not logged in to NATS yet"

    def health(self) -> Health:
        """Whether servers can ask this process."""
        ok = self._connection is not None and self._connection.is_up
        trouble = {} if ok else {"trouble": self._trouble if self._connection is None else "NATS is away"}
        return Health(ok, {"ok": ok, **trouble})

    async def run(self, say: Callable[[str], None]) -> None:
        """Answer for as long as this runs.

        Raises:
            SettingsError: the issuer's key cannot be read.
            KubeConfigError: there is no cluster.
            ListenError: the address of the metrics cannot be listened on.
        """
        settings = self._settings
        key = read_issuer_key(settings.seed)
        kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
        async with open_client(kubeconfig) as kube, serving(settings.metrics_listen, self.health) as url:
            say(f"The auth callout service is up; metrics {url}/metrics, health {url}/healthz")
            retries = Retries(RETRY, system_jitter)
            while True:
                try:
                    await self._serve(kube, key, retries)
                except (LedgerUnavailableError, NatsError) as error:
                    self._trouble = str(error)
                    log.warning("callout.away", error=str(error))
                await asyncio.sleep(retries.pause_s())

    async def _serve(self, kube: KubeClient, key: Ed25519PrivateKey, retries: Retries) -> None:
        settings = self._settings
        user = "system:serviceaccount:{}:{}".format(*settings.service_account)
        rules = LoginRules(settings.audience, user)
        async with connected(settings.nats_url, name=NAME, identity=settings.nats_identity) as connection:
            over = _Over(connection)
            service = AuthCallout(connection, kube, rules, key, system_clock)
            with connection.on_denial(over.on_denial), connection.on_break(over.on_break):
                async with service.listening():
                    # The library's ping may overtake what was sent before it, a second one may not.
                    await connection.client.flush(SUBSCRIBED_TIMEOUT_S)
                    await connection.client.flush(SUBSCRIBED_TIMEOUT_S)
                    over.check()
                    self._connection = connection
                    retries.reset()
                    try:
                        await over.wait()
                    finally:
                        self._connection = None


class _Over:
    """Whether a connection cannot serve any more: it was closed for good, or may not listen."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._denial: Denial | None = None
        self._changed = asyncio.Event()

    def on_denial(self, denial: Denial) -> None:
        if denial.kind == "subscription":
            self._denial = denial
            self._changed.set()

    def on_break(self) -> None:
        if self._connection.client.is_closed:
            self._changed.set()

    def check(self) -> None:
        """Raise PermissionDeniedError where the server does not let us listen."""
        if self._denial is not None:
            raise permission_error(self._connection.address, self._denial, ADVICE)

    async def wait(self) -> None:
        """Return when it was closed, or raise as `check` does."""
        await self._changed.wait()
        self.check()
