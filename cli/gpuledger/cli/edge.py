"""The Kubernetes edge of `gpuledger up`: an API server, and the services between it and the ledger.

A cluster that KUBECONFIG names, or that of the pod that we run in, is used as it is; nothing is installed in it, and no
fleet is ever simulated there. Otherwise the embedded API server runs beside everything else, with every CRD that the
services need.

Admission webhooks are served where the API server can reach them: on this machine to the embedded one, and to a cluster
through the Service of the Helm chart, which says where to listen.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

import structlog

from gpuledger.api.kinds import NAMESPACE, NAMESPACES, NODES
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.stopping import say
from gpuledger.edge.admission.main import Admission, AdmissionSettings, admission
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import AlreadyExistsError
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.edge.watchers.main import run as watch
from gpuledger.edge.watchers.watcher import WatcherSettings
from gpuledger.ledger.api import Ledger
from gpuledger.local.kubeapi.persistence import ObjectsFileError
from gpuledger.local.kubeapi.running import EmbeddedKube, embedded_kube
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import ADMISSION_LISTEN, KUBECONFIG, Settings
from gpuledger.runtime.tasks import Work
from gpuledger.runtime.telemetry_http import ListenError, parse_address
from gpuledger.tools.simulation.errors import SimulationError
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.main import run as simulate
from gpuledger.tools.simulation.pace import Pace
from gpuledger.tools.simulation.resume import standing

EMBEDDED_LISTEN = "127.0.0.1:0"
"""Where the webhooks of the embedded API server listen."""

log = structlog.get_logger("gpuledger.up")


class FleetOptions(NamedTuple):
    """Which fleet is simulated, how fast and with which chance."""

    spec: FleetSpec
    speed: float
    seed: int

    @classmethod
    def read(cls, spec: str, speed: float, seed: int) -> Self:
        """What the command line gives.

        Raises:
            CliError: it is no fleet, or too fast a one.
        """
        try:
            Pace(system_clock(), speed)
            return cls(FleetSpec.parse(spec), speed, seed)
        except SimulationError as error:
            raise CliError(str(error), code=ExitCode.USAGE) from error


class EdgeOptions(NamedTuple):
    """What the command line says of the edge."""

    listen: str
    fleet: FleetOptions | None = None


class Edge(NamedTuple):
    """What runs: the embedded server, where it is not another's, the services to ask for their health, and all work."""

    embedded: EmbeddedKube | None
    writer: StatusWriter
    webhooks: Admission | None
    work: list[Work]


@asynccontextmanager
async def kube_edge(settings: Settings, options: EdgeOptions, ledger: Ledger, database_url: str) -> AsyncIterator[Edge]:
    """Have an API server, and the work that keeps it and the ledger in step.

    Raises:
        CliError: the embedded server cannot start.
        KubeError: the cluster cannot be used.
    """
    if settings.has_cluster:
        async with open_client() as client:
            yield _edge(None, client, options, ledger, database_url, settings)
        return
    try:
        host, port = parse_address(options.listen)
        async with embedded_kube(settings.data_dir, host, port) as embedded, open_client(embedded.kubeconfig) as client:
            await crds.install(client, [*crds.shipped(), *crds.foreign()])
            with suppress(AlreadyExistsError):
                await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            if options.fleet is not None:
                await _tell_of_foreign(client, options.fleet, settings.data_dir)
            yield _edge(embedded, client, options, ledger, database_url, settings)
    except ObjectsFileError as error:
        raise CliError(str(error)) from error


def check_options(settings: Settings, options: EdgeOptions) -> None:
    """Keep a simulation out of a real cluster.

    Raises:
        CliError: there would be one.
    """
    if options.fleet is None or not settings.has_cluster:
        return
    which, way_out = f"that {KUBECONFIG} names", f"Unset {KUBECONFIG}"
    if settings.kubeconfig is None:
        which, way_out = "that this pod runs in", "Set automountServiceAccountToken: false for the pod"
    hint = f"{way_out} to use the embedded API server"
    raise CliError(f"--fleet would make up Nodes in the cluster {which}", hint, code=ExitCode.USAGE)


async def _tell_of_foreign(client: KubeClient, asked: FleetOptions, data_dir: Path) -> None:
    """Warn of simulated nodes that earlier runs left and that are none of the fleet's."""
    found = standing(Fleet(asked.spec, asked.seed), (await client.list(NODES)).items)
    if not found.foreign:
        return
    first, last = found.foreign[0], found.foreign[-1]
    say(
        f"Warning: of the simulated nodes that {data_dir} has already, {len(found.foreign)} of {len(found.nodes)} "
        f"({first if first == last else f'{first} to {last}'}) are not in --fleet {asked.spec} --seed {asked.seed}. "
        f"They stay as they are, and nothing simulates them. Give another --data-dir for that fleet alone."
    )


def _edge(
    embedded: EmbeddedKube | None,
    client: KubeClient,
    options: EdgeOptions,
    ledger: Ledger,
    database_url: str,
    settings: Settings,
) -> Edge:
    writer = StatusWriter(ledger, database_url, client, settings=StatusWriterSettings(components=settings.components))
    webhooks = _webhooks(settings, ledger, client)
    watched = WatcherSettings(components_namespace=settings.components.namespace)
    work: list[Work] = [watch(client, ledger, database_url, settings=watched), writer.run()]
    if webhooks is not None:
        work.append(_answering(webhooks))
    if options.fleet is not None:
        spec, speed, seed = options.fleet
        clock, sleep = system_clock, asyncio.sleep
        work.append(simulate(spec, client=client, ledger=ledger, clock=clock, sleep=sleep, speed=speed, seed=seed))
    return Edge(embedded, writer, webhooks, work)


def _webhooks(settings: Settings, ledger: Ledger, client: KubeClient) -> Admission | None:
    """The webhooks, where the API server can reach them."""
    if not settings.has_cluster:
        return admission(ledger, client, AdmissionSettings(listen=EMBEDDED_LISTEN, reached=None))
    listen, namespace = settings.webhooks.listen, settings.webhooks.namespace
    if listen is None:
        log.info(
            "up.no-admission",
            reason=f"No admission webhooks are served: the cluster has no way to this process. The Helm chart has a "
            f"Service for them, and sets {ADMISSION_LISTEN}.",
        )
        return None
    return admission(ledger, client, AdmissionSettings(listen=listen, namespace=namespace))


async def _answering(webhooks: Admission) -> None:
    try:
        await webhooks.run()
    except ListenError as error:
        raise CliError(str(error), f"The address of the admission webhooks is in {ADMISSION_LISTEN}") from error
