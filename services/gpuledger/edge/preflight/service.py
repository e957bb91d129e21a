"""The webhook of the service `preflight`: it gives new pods with GPUs their checks. Every replica answers.

It needs no ledger to answer: what it decides follows from the pod, the configuration, and what the API server says of
the pod's namespace and claims. It answers nothing before it has a configuration.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import structlog
from aiohttp import web

from gpuledger.api.kinds import PODS, PREFLIGHT_TLS_SECRET
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.preflight.claims import references
from gpuledger.edge.preflight.configuration import PreflightConfiguration
from gpuledger.edge.preflight.configuration_file import ConfigurationFile, InForce
from gpuledger.edge.preflight.coordinator.settings import GANG_TIMEOUT_S
from gpuledger.edge.preflight.injection import PodFindings, inject, names_in, needs_lookups
from gpuledger.edge.preflight.lookups import Lookups
from gpuledger.edge.preflight.metrics import CONNECTIONS_REFUSED, EXPIRES, INJECTIONS, LATENCY, LEFT_OUT, UNDER_WAY
from gpuledger.edge.preflight.patch import pod_patch
from gpuledger.edge.preflight.reserved import (
    REASON,
    REASON_IMAGE,
    checks_with_another_image,
    denial,
    denial_of_images,
    names_of_checks,
)
from gpuledger.edge.preflight.settings import PreflightSettings
from gpuledger.edge.preflight.webhook_configuration import EPHEMERAL_PLURAL, MUTATE_PATH, webhook_configuration
from gpuledger.edge.webhooks.certificates.authority import Pair, Profile
from gpuledger.edge.webhooks.certificates.rotation import CertificateRotation, KeptWebhooks, ServedCertificate
from gpuledger.edge.webhooks.configuration import Configuration, WebhookTarget
from gpuledger.edge.webhooks.serving.review import ALLOWED, CREATE, UPDATE, AdmissionRequest, AdmissionResponse
from gpuledger.edge.webhooks.serving.server import ReviewServer, ServerMetrics
from gpuledger.edge.webhooks.settings import WebhookAddress
from gpuledger.runtime.backoff import Jitter, system_jitter
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.tasks import run_until_one_fails

NOT_READY = "The webhook of preflight checks has no configuration that it can use; its log says why.\n"
PROFILE = Profile("gpuledger preflight webhook")

log = structlog.get_logger("gpuledger.preflight")


class PreflightHealth(NamedTuple):
    """`state` is starting, configuring (it has no configuration that it can use) or answering; `url` is where.

    `reason` is what is wrong, though the webhook may go on with what it had.
    """

    state: str
    url: str | None
    reason: str | None

    @property
    def is_ready(self) -> bool:
        """Whether the webhook answers reviews."""
        return self.state == "answering"


class PreflightWebhook:
    """The webhook with all that it needs; `run` it, and ask for its `health`."""

    def __init__(
        self,
        client: KubeClient,
        ledger_id: str,
        settings: PreflightSettings,
        *,
        clock: Clock = system_clock,
        jitter: Jitter = system_jitter,
        on_namespaces: Callable[[frozenset[str]], None] = lambda _names: None,
    ) -> None:
        """`on_namespaces` is called with the namespaces that get checks, each time they may be others."""
        self._client = client
        self._ledger_id = ledger_id
        self._settings = settings
        self._clock = clock
        self._jitter = jitter
        self._certificate = ServedCertificate(EXPIRES)
        self._lookups = Lookups(client, settings, asyncio.get_running_loop().time)
        self._server = ReviewServer(settings, ServerMetrics(UNDER_WAY, CONNECTIONS_REFUSED, _observe))
        self._rotation: CertificateRotation | None = None
        self._file = ConfigurationFile(settings.file, settings.file_poll_s, self._changed)
        self._url: str | None = None
        self._on_namespaces = on_namespaces

    @property
    def configuration(self) -> PreflightConfiguration | None:
        """The configuration in force."""
        return self._file.in_force.configuration if self._file.in_force else None

    @property
    def is_configured(self) -> bool:
        """Whether the API server has the webhook configuration, with the authorities to trust."""
        return self._rotation is not None and self._rotation.rounds > 0

    def gang_timeout_s(self) -> float:
        """How long a gang may take to form, as configured at the moment."""
        configuration = self.configuration
        return GANG_TIMEOUT_S if configuration is None else configuration.gang_timeout_s

    def health(self) -> PreflightHealth:
        """The state of the webhook."""
        problem = self._file.problem or (self._rotation.problem if self._rotation else None)
        if self._file.in_force is None:
            return PreflightHealth("configuring", self._url, problem)
        return PreflightHealth("answering" if self._certificate.shown else "starting", self._url, problem)

    async def run(self) -> None:
        """Run until cancelled, recovering from an API server that goes away.

        Raises:
            ListenError: the address in the settings cannot be listened on.
        """
        await self._file.look()
        async with self._server.serving(self._certificate.context, {MUTATE_PATH: self._mutate}) as url:
            self._url = url
            address = self._settings.address or WebhookAddress(url=url)
            hooks = KeptWebhooks(
                PREFLIGHT_TLS_SECRET,
                address,
                lambda pair: self._configured(address, pair),
                PROFILE,
                self._settings.owner,
            )
            self._rotation = CertificateRotation(
                self._client, self._ledger_id, self._certificate, hooks, self._settings, self._clock, self._jitter
            )
            await run_until_one_fails([self._rotation.run(), self._file.run()])

    async def review(self, request: AdmissionRequest) -> AdmissionResponse | None:
        """The response about a pod; None while there is no configuration."""
        in_force = self._file.in_force
        if in_force is None:
            INJECTIONS.labels("not-ready").inc()
            return None
        covers = in_force.configuration.covers(request.namespace, self._settings.namespace)
        is_creation = request.operation == CREATE and not request.subresource
        if request.plural != PODS.plural or not covers or request.subresource not in ("", EPHEMERAL_PLURAL):
            INJECTIONS.labels("not-covered").inc()
            return ALLOWED
        if (refused := _refusal(request, in_force.configuration)) is not None:
            INJECTIONS.labels("refused").inc()
            return refused
        return await self._reviewed(request, in_force) if is_creation else ALLOWED

    async def _reviewed(self, request: AdmissionRequest, in_force: InForce) -> AdmissionResponse:
        configuration, pod = in_force.configuration, request.new
        found = PodFindings(None, {}, in_force.authority)
        if needs_lookups(pod, configuration):
            claims = list(references(pod)) if configuration.has_device_classes else []
            namespace, classes = await self._lookups.find(request.namespace, claims)
            found = found._replace(namespace=namespace, classes=classes)
        injection = inject(pod, found, configuration)
        INJECTIONS.labels(injection.result).inc()
        for check, reason in injection.left_out:
            LEFT_OUT.labels(check, reason).inc()
        if injection.unresolved:
            log.warning("preflight.unresolved", namespace=request.namespace, claims=injection.unresolved)
        return AdmissionResponse(warnings=injection.warnings, patch=pod_patch(pod, injection.pod))

    async def _mutate(self, http: web.Request) -> web.Response:
        return await self._server.answer(http, self.review, NOT_READY)

    def _configured(self, address: WebhookAddress, authority: Pair) -> list[Configuration]:
        configuration = self.configuration
        if configuration is None:
            return []
        target = WebhookTarget(self._settings.namespace, address, authority.bundle)
        return [webhook_configuration(configuration, target, self._settings)]

    def _changed(self) -> None:
        configuration, home = self.configuration, self._settings.namespace
        if configuration is not None:
            self._on_namespaces(frozenset(one for one in configuration.namespaces if configuration.covers(one, home)))
        if self._rotation is not None:
            self._rotation.rotate_soon()


def _refusal(request: AdmissionRequest, configuration: PreflightConfiguration) -> AdmissionResponse | None:
    """Why a pod may not be so; an update of a pod itself can change no names."""
    if request.operation == UPDATE and not request.subresource:
        changed = checks_with_another_image(request.new, request.old)
        return AdmissionResponse(REASON_IMAGE, denial_of_images(changed)) if changed else None
    names = names_of_checks(request.new, names_in(configuration))
    return AdmissionResponse(REASON, denial(names)) if names else None


def _observe(_request: AdmissionRequest, seconds: float) -> None:
    LATENCY.observe(seconds)
