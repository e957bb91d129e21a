"""Composes the service `preflight`: the webhook that gives pods their checks, and the coordinator of their gangs.

Both follow one file. Without it there are no preflight checks: nothing is served, and nothing waits for gangs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from gpuledger.compose.preflight_example import LOCAL_FILE
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.preflight.coordinator.service import CoordinatorHealth, PreflightCoordinator
from gpuledger.edge.preflight.coordinator.settings import CoordinatorSettings
from gpuledger.edge.preflight.service import PreflightHealth, PreflightWebhook
from gpuledger.edge.preflight.settings import PreflightSettings
from gpuledger.ledger.api import Ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.preflight_files import PREFLIGHT_LISTEN
from gpuledger.runtime.settings import Settings
from gpuledger.runtime.tasks import run_until_one_fails
from gpuledger.runtime.telemetry_http import ListenError
from gpuledger.tools.errors import ToolError

LOCAL_LISTEN: Final = "127.0.0.1:0"
"""Where the webhook of the embedded API server listens."""

log = structlog.get_logger("gpuledger.preflight")


class PreflightService(NamedTuple):
    """The webhook and the coordinator of one process."""

    webhook: PreflightWebhook
    coordinator: PreflightCoordinator

    def health(self) -> tuple[PreflightHealth, CoordinatorHealth]:
        """The state of both."""
        return self.webhook.health(), self.coordinator.health()

    async def run(self) -> None:
        """Run both.

        Raises:
            ToolError: the address cannot be listened on.
        """
        try:
            await run_until_one_fails([self.webhook.run(), self.coordinator.run()])
        except ListenError as error:
            raise ToolError(
                str(error), f"The address of the webhook of preflight checks is in {PREFLIGHT_LISTEN}"
            ) from error


def preflight_file(settings: Settings) -> Path | None:
    """The file with the configuration; None where nobody has set up preflight checks.

    Beside an embedded API server it may stand in the data directory.
    """
    if settings.preflight.file is not None or settings.has_cluster:
        return settings.preflight.file
    local = settings.data_dir / LOCAL_FILE
    return local if local.exists() else None


def preflight_service(
    settings: Settings,
    client: KubeClient,
    ledger: Ledger,
    database_url: str,
    followed: FollowedLog,
    on_namespaces: Callable[[frozenset[str]], None],
    cluster: str | None = None,
) -> PreflightService | None:
    """The service; None where nobody has set it up, or the API server has no way to this process.

    `on_namespaces` is called with the namespaces that get checks, each time they may be others.
    """
    file, bounds = preflight_file(settings), None
    if file is not None:
        bounds = _webhook_settings(settings, file)
    if bounds is None:
        return None
    webhook = PreflightWebhook(client, ledger.identity.ledger_id, bounds, on_namespaces=on_namespaces)
    limits = CoordinatorSettings(gang_timeout_s=webhook.gang_timeout_s, owner=bounds.owner)
    coordinator = PreflightCoordinator(ledger, database_url, client, followed, settings=limits, cluster=cluster)
    return PreflightService(webhook, coordinator)


def _webhook_settings(settings: Settings, file: Path) -> PreflightSettings | None:
    if not settings.has_cluster:
        return PreflightSettings(listen=LOCAL_LISTEN, address=None, file=file)
    listen = settings.preflight.listen
    if listen is None:
        log.info("up.no-preflight", reason=f"No checks are injected into pods: {PREFLIGHT_LISTEN} is not set.")
        return None
    namespace, owner = settings.webhooks.namespace, settings.preflight.owner
    return PreflightSettings(listen=listen, namespace=namespace, file=file, owner=owner)
