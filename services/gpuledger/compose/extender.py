"""Composes the extender of kube-scheduler: as a part of `gpuledger up`, and as a process of its own.

Its process outlives servers that are away: the scheduler is refused meanwhile, and tries again.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

import structlog

from gpuledger.api.sharing import SCHEDULER, SharingNames
from gpuledger.compose.certificate_metrics import measure_certificates, watched_files
from gpuledger.edge.extender.certificate import ExtenderCertificate
from gpuledger.edge.extender.service import Extender, ExtenderLeadership
from gpuledger.edge.extender.settings import ExtenderSettings
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.webhooks.settings import ServingSettings
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LedgerError
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.backoff import Backoff, Retries, system_jitter
from gpuledger.runtime.extender_settings import EXTENDER_LISTEN, ExtenderOptions
from gpuledger.runtime.settings import Servers, Settings, SettingsError
from gpuledger.runtime.tasks import run_until_one_ends
from gpuledger.runtime.telemetry_http import Health, ListenError, serving
from gpuledger.tools.errors import ToolError
from gpuledger.tools.queries.backend import all_projections

LOCAL_LISTEN: Final = "127.0.0.1:0"
"""Where the extender beside the embedded API server listens."""

RETRY: Final = Backoff(first_s=0.2, max_s=10.0)

log = structlog.get_logger("gpuledger.extender")


def extender_service(
    settings: Settings,
    options: ExtenderOptions,
    names: SharingNames,
    client: KubeClient,
    ledger: Ledger,
    database_url: str,
    followed: FollowedLog,
    cluster: str | None = None,
) -> Extender | None:
    """The extender of `gpuledger up`; None where the scheduler of a real cluster has no way to this process."""
    listen = options.listen or (None if settings.has_cluster else LOCAL_LISTEN)
    if listen is None:
        return None
    bounds = extender_settings(options, names, listen)
    certificate = None if options.tls is None else ExtenderCertificate(options.tls)
    leadership = ExtenderLeadership(ledger, database_url, client, followed, settings=bounds, cluster=cluster)
    return Extender(leadership, bounds, certificate)


def local_names(names: SharingNames) -> SharingNames:
    """The names beside an embedded API server, where a scheduler of ours places pods whatever the settings say."""
    return names if names.scheduler is not None else names._replace(scheduler=SCHEDULER)


def extender_settings(options: ExtenderOptions, names: SharingNames, listen: str | None = None) -> ExtenderSettings:
    """The limits of an extender with these options."""
    bounds = ExtenderSettings(names=names, strategy=options.strategy, one_in_flight=options.one_in_flight)
    if listen is None:
        return bounds
    return ExtenderSettings(
        names=names,
        strategy=options.strategy,
        one_in_flight=options.one_in_flight,
        serving=ServingSettings(
            listen=listen,
            review_bytes_max=bounds.serving.review_bytes_max,
            connections_max=bounds.serving.connections_max,
        ),
    )


async def run_extender(extender: Extender) -> None:
    """Run it.

    Raises:
        ToolError: the address cannot be listened on.
    """
    try:
        await extender.run()
    except ListenError as error:
        raise ToolError(str(error), f"The address of the extender is in {EXTENDER_LISTEN}") from error


class ExtenderProcess:
    """The process: it opens the ledger, serves, and opens it again. Only where it leads it is ready."""

    def __init__(self, settings: Settings, options: ExtenderOptions, names: SharingNames) -> None:
        self._settings = settings
        self._options = options
        self._names = names
        self._extender: Extender | None = None
        self._trouble = "it has not opened the ledger yet"

    def health(self) -> Health:
        """Whether the scheduler can ask this process."""
        if self._extender is None:
            return Health(False, {"status": "starting", "reason": self._trouble})
        found = self._extender.health()
        return Health(found.is_ready, {"status": "ok" if found.is_ready else found.state, **found._asdict()})

    async def run(self, say: Callable[[str], None]) -> None:
        """Serve for as long as this runs.

        Raises:
            SettingsError: no servers are named, or the certificate cannot be read.
            KubeConfigError: there is no cluster.
            ToolError: an address cannot be listened on.
        """
        servers = self._settings.servers
        if servers is None:
            raise SettingsError(
                "Set NATS_URL and DATABASE_URL: the extender runs beside the servers of an installation."
            )
        kubeconfig = Path(self._settings.kubeconfig) if self._settings.kubeconfig else None
        watched = watched_files(servers.nats_identity, servers.database_url)
        async with open_client(kubeconfig) as client, serving(self._settings.metrics_listen, self.health) as url:
            say(f"The extender opens the ledger; metrics {url}/metrics, health {url}/healthz")
            await run_until_one_ends(self._keep_serving(client, servers, say), measure_certificates(watched))

    async def _keep_serving(self, client: KubeClient, servers: Servers, say: Callable[[str], None]) -> None:
        retries = Retries(RETRY, system_jitter)
        while True:
            try:
                await self._serve(client, servers, retries, say)
            except LedgerError as error:
                if str(error) != self._trouble:
                    log.warning("extender.away", reason=str(error))
                self._trouble = str(error)
            await asyncio.sleep(retries.pause_s())

    async def _serve(self, client: KubeClient, servers: Servers, retries: Retries, say: Callable[[str], None]) -> None:
        async with (
            connect_ledger(servers.nats_url, name="extender", identity=servers.nats_identity) as ledger,
            aclosing(FollowedLog(all_projections(), ledger, servers.database_url)) as followed,
        ):
            retries.reset()
            self._extender = extender_service(
                self._settings,
                self._options,
                self._names,
                client,
                ledger,
                servers.database_url,
                followed,
            )
            if self._extender is None:
                raise SettingsError(f"Set {EXTENDER_LISTEN}, such as 0.0.0.0:9447: kube-scheduler asks there.")
            say("The extender is up; it answers while it leads")
            try:
                await run_extender(self._extender)
            finally:
                self._extender = None
