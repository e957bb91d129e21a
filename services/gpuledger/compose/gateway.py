"""Composes the process of the health gateway: the ledger, the API server that reviews tokens, its metrics and health.

It outlives servers that are away: monitors are refused meanwhile, and send their reports again.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from gpuledger.compose.certificate_metrics import (
    Watched,
    authorities_validity,
    certificate_validity,
    credentials_validity,
    measure_certificates,
)
from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.service import HealthGateway, Ports
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.ledger.errors import LedgerError
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.runtime.backoff import Backoff, Retries, system_jitter
from gpuledger.runtime.gateway_settings import GatewaySettings
from gpuledger.runtime.tasks import run_until_one_ends
from gpuledger.runtime.telemetry_http import Health, serving

RETRY: Final = Backoff(first_s=0.2, max_s=10.0)
NAME: Final = "health gateway"

log = structlog.get_logger("gpuledger.gateway")


class GatewayProcess:
    """The process: it opens the ledger, serves, and opens it again."""

    def __init__(self, settings: GatewaySettings, bounds: GatewayBounds | None = None) -> None:
        self.ports: Ports | None = None
        self._settings = settings
        self._bounds = bounds
        self._gateway: HealthGateway | None = None
        self._trouble = "it has not opened the ledger yet"

    def health(self) -> Health:
        """Whether monitors can report to this process."""
        trouble = self._trouble if self._gateway is None else self._gateway.trouble
        return Health(not trouble, {"ok": not trouble, **({"trouble": trouble} if trouble else {})})

    async def run(self, say: Callable[[str], None]) -> None:
        """Serve for as long as this runs.

        Raises:
            SettingsError: the certificates cannot be read.
            KubeConfigError: there is no cluster.
            ListenError: an address cannot be listened on.
        """
        settings = self._settings
        kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
        async with open_client(kubeconfig) as kube, serving(settings.metrics_listen, self.health) as url:
            say(f"The health gateway opens the ledger; metrics {url}/metrics, health {url}/healthz")
            await run_until_one_ends(self._keep_serving(kube, say), measure_certificates(_watched(settings)))

    async def _keep_serving(self, kube: KubeClient, say: Callable[[str], None]) -> None:
        retries = Retries(RETRY, system_jitter)
        while True:
            try:
                await self._serve(kube, retries, say)
            except LedgerError as error:
                if str(error) != self._trouble:
                    log.warning("gateway.away", reason=str(error))
                self._trouble = str(error)
            await asyncio.sleep(retries.pause_s())

    async def _serve(self, kube: KubeClient, retries: Retries, say: Callable[[str], None]) -> None:
        settings = self._settings

        def on_serving(ports: Ports) -> None:
            retries.reset()
            self.ports = ports
            say(_up_text(settings, ports))

        async with connect_ledger(settings.nats_url, name=NAME, identity=settings.nats_identity) as ledger:
            self._gateway = HealthGateway(ledger, kube, settings, self._bounds)
            try:
                await self._gateway.run(on_serving)
            finally:
                self._gateway = None


def _watched(settings: GatewaySettings) -> list[Watched]:
    identity, tls = settings.nats_identity, settings.tls
    return [
        Watched("gateway-serving", tls.certificate, certificate_validity),
        Watched("gateway-clients", tls.client_ca, authorities_validity),
        Watched("nats-client", identity.certificate, certificate_validity),
        Watched("nats-authorities", identity.ca, authorities_validity),
        Watched("nats-credentials", identity.credentials, credentials_validity),
    ]


def _up_text(settings: GatewaySettings, ports: Ports) -> str:
    ways = [
        f"{how} at {_address(listen, port)}"
        for how, listen, port in (
            ("tokens of service accounts", settings.listen, ports.tokens),
            ("client certificates", settings.listen_mtls, ports.certificates),
        )
        if listen is not None and port is not None
    ]
    return f"The health gateway is up: it takes {' and '.join(ways)}"


def _address(listen: str, port: int) -> str:
    return f"{listen.rpartition(':')[0]}:{port}"
