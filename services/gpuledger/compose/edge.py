"""Composes the Kubernetes edge of `gpuledger up`: a cluster, and the services between it and the ledger.

A real cluster (that of KUBECONFIG, or of the pod that this runs in) is used as it is: nothing is installed in it, and
no fleet is ever simulated there. Which ledger it belongs to, it says itself; a person may give it to this one.
Otherwise an embedded API server runs, with every CRD that the services need.

Admission webhooks are served where the API server can reach them: on this machine for the embedded one, and for a real
cluster through the Service of the Helm chart, which sets the address to listen on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

import structlog

from gpuledger.api.kinds import NAMESPACE, NAMESPACES, NODES
from gpuledger.api.sharing import SharingNames
from gpuledger.compose.extender import extender_service, local_names, run_extender
from gpuledger.compose.preflight import PreflightService, preflight_service
from gpuledger.compose.preflight_example import place_example
from gpuledger.edge.admission.service import AdmissionService
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.edge.extender.service import Extender
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import AlreadyExistsError
from gpuledger.edge.kube.ownership import owner, take_over
from gpuledger.edge.nodewriter.service import NodeWriter
from gpuledger.edge.nodewriter.settings import NodeWriterSettings
from gpuledger.edge.remediator.service import Remediator
from gpuledger.edge.remediator.settings import RemediatorSettings
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.edge.watchers.resources.moduleconfig import understand
from gpuledger.edge.watchers.service import run as watch
from gpuledger.edge.watchers.watcher import WatcherSettings
from gpuledger.ledger.api import Ledger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.extender_settings import ExtenderOptions
from gpuledger.runtime.own_pod import own_namespaces
from gpuledger.runtime.settings import (
    ADMISSION_LISTEN,
    KUBECONFIG,
    MODULE_SETTINGS,
    SERVICE_ACCOUNT_TOKEN,
    Settings,
    SettingsError,
)
from gpuledger.runtime.tasks import Work
from gpuledger.runtime.telemetry_http import ListenError
from gpuledger.tools.errors import RequestError, ToolError
from gpuledger.tools.queries.backend import all_projections
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec, SimulationError
from gpuledger.tools.simulation.resume import leftover_nodes
from gpuledger.tools.simulation.schedule import Pace
from gpuledger.tools.simulation.scheduling.scheduler import SharingScheduler
from gpuledger.tools.simulation.service import run as simulate

EMBEDDED_LISTEN = "127.0.0.1:0"
"""Where the webhooks of the embedded API server listen."""

HOSTS = "hosts"
"""The folder of a data directory with the files of simulated nodes' hosts, by node."""

StartKube = Callable[[], AbstractAsyncContextManager[Path]]
"""Serves the embedded API for the length of the block; gives the kubeconfig with which clients find it."""

log = structlog.get_logger("gpuledger.up")


class FleetOptions(NamedTuple):
    """The fleet to simulate, how many simulated seconds a real one is, and the seed of all chance.

    `has_rules`: a ledger that has had no rules of quarantine begins with those of the example.
    """

    spec: FleetSpec
    speed: float
    seed: int
    has_rules: bool = True

    @classmethod
    def read(cls, spec: str, speed: float, seed: int, *, has_rules: bool) -> Self:
        """Read the options of the command line.

        Raises:
            RequestError: the text describes no fleet, or the speed is out of range.
        """
        try:
            Pace(system_clock(), speed)
            return cls(FleetSpec.parse(spec), speed, seed, has_rules)
        except SimulationError as error:
            raise RequestError(str(error)) from error


class Edge(NamedTuple):
    """The services of the edge and all their work; `kubeconfig` is that of the embedded API server, where it runs.

    They write only while the rows in the database follow the log: `followed` says what is wrong where they do not.
    """

    kubeconfig: Path | None
    writer: StatusWriter
    nodes: NodeWriter
    remediator: Remediator
    webhooks: AdmissionService | None
    preflight: PreflightService | None
    extender: Extender | None
    work: list[Work]
    followed: FollowedLog


class EdgeParts(NamedTuple):
    """What the edge works with: a ledger and database, an embedded API server if it needs one, and a fleet if any.

    `warn` shows a line to the user. `cluster` names a real cluster in messages. `takes_over`: the user wants the
    cluster to belong to this ledger, whoever has it. `sharing` are the names of what is about sharing.
    """

    ledger: Ledger
    database_url: str
    start_kube: StartKube
    fleet: FleetOptions | None
    warn: Callable[[str], None]
    cluster: str | None = None
    takes_over: bool = False
    sharing: SharingNames = SharingNames()
    extender: ExtenderOptions = ExtenderOptions()


@asynccontextmanager
async def kube_edge(settings: Settings, parts: EdgeParts) -> AsyncIterator[Edge]:
    """Connect to a cluster, and compose the services that keep it and the ledger in step.

    Raises:
        KubeError: the cluster cannot be used.
        LogChangedError: the cluster is to be taken over for a log that the rows do not follow.
    """
    async with (
        aclosing(FollowedLog(all_projections(), parts.ledger, parts.database_url)) as followed,
        _cluster(settings, parts) as (kubeconfig, client),
    ):
        if parts.takes_over:
            await followed.confirm()
            await _take_over(client, parts)
        yield _edge(kubeconfig, client, parts, settings, followed)


@asynccontextmanager
async def _cluster(settings: Settings, parts: EdgeParts) -> AsyncIterator[tuple[Path | None, KubeClient]]:
    """A client of the real cluster, or of the embedded API server with all that it needs, and that one's kubeconfig."""
    if settings.has_cluster:
        async with open_client() as client:
            yield None, client
        return
    async with parts.start_kube() as kubeconfig, open_client(kubeconfig) as client:
        await crds.install(client, [*crds.shipped(parts.sharing), *crds.foreign()])
        with suppress(AlreadyExistsError):
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        if parts.fleet is not None:
            place_example(settings.data_dir)
            await _warn_of_foreign(client, parts.fleet, settings.data_dir, parts.warn)
        yield kubeconfig, client


async def _take_over(client: KubeClient, parts: EdgeParts) -> None:
    before = await take_over(client, owner(parts.ledger.identity.ledger_id, system_clock()))
    if before is not None:
        cluster = parts.cluster or client.url
        parts.warn(f"Warning: the cluster {cluster} belongs to this ledger from now on; before, to {before}.")


def check_fleet(settings: Settings, fleet: FleetOptions | None) -> None:
    """Keep a simulation out of a real cluster.

    Raises:
        RequestError: the settings lead to one.
    """
    if fleet is None or not settings.has_cluster:
        return
    which, way_out = f"that {KUBECONFIG} names", f"Unset {KUBECONFIG}"
    if settings.kubeconfig is None:
        which, way_out = "that this pod runs in", "Set automountServiceAccountToken: false for the pod"
    hint = f"{way_out} to use the embedded API server"
    raise RequestError(f"--fleet would make up Nodes in the cluster {which}", hint)


def check_module(settings: Settings) -> None:
    """Refuse module settings of the installation that cannot be understood, all at once.

    Raises:
        SettingsError: it names each.
    """
    if problems := understand(settings.module).problems:
        raise SettingsError(f"{MODULE_SETTINGS} cannot be used: {'; '.join(problems)}. docs/kubernetes.md lists all.")


async def _warn_of_foreign(
    client: KubeClient, fleet: FleetOptions, data_dir: Path, warn: Callable[[str], None]
) -> None:
    """Warn of simulated nodes that earlier runs left and that do not belong to this fleet."""
    found = leftover_nodes(Fleet(fleet.spec, fleet.seed), (await client.list(NODES)).items)
    if not found.foreign:
        return
    first, last = found.foreign[0], found.foreign[-1]
    warn(
        f"Warning: of the simulated nodes that {data_dir} has already, {len(found.foreign)} of {len(found.nodes)} "
        f"({first if first == last else f'{first} to {last}'}) are not in --fleet {fleet.spec} --seed {fleet.seed}. "
        f"They stay as they are, and nothing simulates them. Give another --data-dir for that fleet alone."
    )


def _edge(
    kubeconfig: Path | None, client: KubeClient, parts: EdgeParts, settings: Settings, followed: FollowedLog
) -> Edge:
    ledger, database_url = parts.ledger, parts.database_url
    sharing = parts.sharing if settings.has_cluster else local_names(parts.sharing)
    limits = StatusWriterSettings(
        components=settings.components,
        deployments=settings.deployments,
        coverage_namespace=settings.coverage_namespace,
        sharing=parts.sharing,
    )
    writer = StatusWriter(ledger, database_url, client, followed, settings=limits, cluster=parts.cluster)
    aside = NodeWriterSettings(untouched_namespaces=untouched_namespaces(settings), sharing=sharing)
    nodes = NodeWriter(ledger, database_url, client, followed, settings=aside, cluster=parts.cluster)
    bounds = RemediatorSettings()
    remediator = Remediator(ledger, database_url, client, followed, settings=bounds, cluster=parts.cluster)
    webhooks = _webhooks(settings, parts, client)
    watchers = WatcherSettings(
        components_namespace=settings.components.namespace,
        module=settings.module,
        is_scaled=bool(settings.deployments),
        sharing=sharing,
    )
    watching = watch(client, ledger, database_url, followed, settings=watchers)
    work: list[Work] = [watching, writer.run(), nodes.run(), remediator.run()]
    if webhooks is not None:
        work.append(_serve(webhooks))
    preflight = preflight_service(settings, client, ledger, database_url, followed, watchers.checked.set, parts.cluster)
    if preflight is not None:
        work.append(preflight.run())
    extender = extender_service(
        settings, parts.extender, sharing, client, ledger, database_url, followed, parts.cluster
    )
    if extender is not None:
        work.append(run_extender(extender))
    if parts.fleet is not None:
        work.append(_simulate(parts.fleet, client, parts, followed, settings.data_dir / HOSTS))
        if extender is not None and sharing.scheduler is not None:
            work.append(SharingScheduler(client, extender.url, sharing.scheduler, system_clock).run())
    return Edge(kubeconfig, writer, nodes, remediator, webhooks, preflight, extender, work, followed)


def untouched_namespaces(settings: Settings) -> tuple[str, ...]:
    """The namespaces from which no drain evicts: those of the settings, of the components, and of this very pod."""
    own = own_namespaces(SERVICE_ACCOUNT_TOKEN) if settings.has_service_account else ()
    return (*settings.untouched_namespaces, settings.components.namespace, *own)


async def _simulate(
    fleet: FleetOptions, client: KubeClient, parts: EdgeParts, followed: FollowedLog, hosts: Path
) -> None:
    await followed.wait_through_absences()
    await simulate(
        fleet.spec,
        client=client,
        ledger=parts.ledger,
        clock=system_clock,
        sleep=asyncio.sleep,
        speed=fleet.speed,
        seed=fleet.seed,
        database_url=parts.database_url,
        names=parts.sharing,
        hosts=hosts,
    )


def _webhooks(settings: Settings, parts: EdgeParts, client: KubeClient) -> AdmissionService | None:
    """The webhooks, where the API server can reach them."""
    if not settings.has_cluster:
        names = local_names(parts.sharing)
        bounds = AdmissionSettings(listen=EMBEDDED_LISTEN, address=None, sharing=names)
        return AdmissionService(parts.ledger, client, bounds, database_url=parts.database_url)
    listen, namespace = settings.webhooks.listen, settings.webhooks.namespace
    if listen is None:
        log.info(
            "up.no-admission",
            reason=f"No admission webhooks are served: the cluster has no way to this process. The Helm chart has a "
            f"Service for them, and sets {ADMISSION_LISTEN}.",
        )
        return None
    bounds = AdmissionSettings(listen=listen, namespace=namespace, sharing=parts.sharing)
    return AdmissionService(parts.ledger, client, bounds, database_url=parts.database_url)


async def _serve(webhooks: AdmissionService) -> None:
    try:
        await webhooks.run()
    except ListenError as error:
        raise ToolError(str(error), f"The address of the admission webhooks is in {ADMISSION_LISTEN}") from error
