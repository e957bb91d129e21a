"""Composes `gpuledger up`: servers, every projection and the Kubernetes edge, until one of them fails.

A projection that stops does not end the process: the others go on, and an operator can repair the one that stopped.
Embedded servers that cannot be restarted end it. This module never starts a server itself; it gets local ones from
factories.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from gpuledger.api.sharing import SharingNames
from gpuledger.compose.closing import ClosingService
from gpuledger.compose.edge import Edge, EdgeParts, FleetOptions, StartKube, kube_edge
from gpuledger.compose.joining import cluster_to_join, remember
from gpuledger.compose.measures import measures
from gpuledger.compose.migrating import migrate_apart
from gpuledger.compose.preflight import PreflightService
from gpuledger.compose.snapshots import SnapshotService, snapshots_of
from gpuledger.db.locks import EDGE_LOCKS, EXPORT_LOCK, LockHolder
from gpuledger.deciders.rollout.projection import NOWHERE, RolloutProjection
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.edge.export.service import Exporter
from gpuledger.edge.kube.kubeconfig import ClusterName
from gpuledger.edge.watchers.metrics import refused_objects
from gpuledger.events.position import Position, number_of
from gpuledger.events.quarantine import QUARANTINE
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import ClosingError
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.projection.definition import Projection
from gpuledger.projection.supervision import Supervision
from gpuledger.runtime.export_settings import ExportSettings
from gpuledger.runtime.extender_settings import ExtenderOptions
from gpuledger.runtime.settings import ANONYMOUS, NatsIdentity, Settings
from gpuledger.runtime.tasks import Work, run_until_one_fails
from gpuledger.runtime.telemetry_http import Health, serving
from gpuledger.tools.applied_documents import apply_first
from gpuledger.tools.archive.past import ArchivedGenerations
from gpuledger.tools.errors import RequestError
from gpuledger.tools.preparation import prepare_ledger
from gpuledger.tools.quarantine.example import example_rules
from gpuledger.tools.queries.backend import all_projections

EDGE: Final = "edge"
"""Watchers, status writer, node writer, remediator and webhooks, as `up --only` names them.

Projections have their own names.
"""

SNAPSHOTS: Final = "snapshots"
"""The process that takes snapshots of folds."""

EXPORT: Final = "export"
"""What exports events over HTTP, where the settings name an endpoint."""

OK: Final = "ok"
"""The status of a process that does all of its work."""


class DataServers(NamedTuple):
    """Where NATS and PostgreSQL are, the work that keeps them running if they are embedded, and who we are to NATS.

    `nats_replicas` is how many replicas a new stream gets.
    """

    nats_url: str
    database_url: str
    work: list[Work]
    nats_identity: NatsIdentity = ANONYMOUS
    nats_replicas: int | None = None


class LocalServers(NamedTuple):
    """Factories of what a laptop runs in place of a data centre; each serves for the length of its block."""

    data: Callable[[], AbstractAsyncContextManager[DataServers]]
    kube: StartKube


class FirstRules(NamedTuple):
    """The rules of quarantine that a fleet begins with: the file that they are from, and since where in the log."""

    file: str
    since: Position


class UpEndpoints(NamedTuple):
    """Where everything can be reached; `kubeconfig` is that of the embedded API server, where it runs.

    `cluster` is the real cluster, where there is one. `rules` are those that this start has put into force.
    """

    nats_url: str
    database_url: str
    telemetry_url: str
    kubeconfig: Path | None
    cluster: ClusterName | None
    rules: FirstRules | None = None


class UpOptions(NamedTuple):
    """The options of the command line. `listen` is the address of /metrics and /healthz.

    `joins_cluster`: the user wants the real cluster that the settings lead to. `takes_over`: the user wants the cluster
    to belong to this ledger, whoever has it. `only`: what runs in this process, the rest in others (empty: all of it).
    `export`: where events go; None: nowhere. `sharing`: names about sharing. `node`: where the process runs, if known.
    """

    listen: str
    has_edge: bool
    fleet: FleetOptions | None
    joins_cluster: bool = False
    takes_over: bool = False
    only: frozenset[str] = frozenset()
    export: ExportSettings | None = None
    sharing: SharingNames = SharingNames()
    extender: ExtenderOptions = ExtenderOptions()
    node: str | None = None

    @property
    def exports(self) -> bool:
        """Whether this process exports events."""
        return self.export is not None and self.runs(EXPORT)

    @property
    def only_reads(self) -> bool:
        """Whether this process records nothing, so that a reader's login is enough."""
        return self.only == {EXPORT}

    def runs(self, name: str) -> bool:
        """Whether this process runs a projection, `EDGE`, `SNAPSHOTS` or `EXPORT`."""
        return not self.only or name in self.only


def services_named(text: str | None) -> frozenset[str]:
    """The services in a list with commas; empty for all of them.

    Raises:
        RequestError: there is no such service.
    """
    services = [*(one.name for one in all_projections()), EDGE, SNAPSHOTS, EXPORT]
    names = [] if text is None else [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in services]
    if unknown:
        raise RequestError(f"There is no service {unknown[0]!r}", f"Choose from {', '.join(services)}")
    return frozenset(names)


class Reports(NamedTuple):
    """How the user hears that everything is up, and of warnings."""

    up: Callable[[UpEndpoints], None]
    warn: Callable[[str], None]


async def serve(settings: Settings, options: UpOptions, local: LocalServers, reports: Reports) -> None:
    """Run everything.

    Raises:
        ListenError: an address cannot be had.
        LogChangedError: the rows in the database follow another log.
        RequestError: nobody requested the cluster that the settings lead to.
    """
    cluster = await cluster_to_join(settings, is_requested=options.joins_cluster) if options.has_edge else None
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(_servers(settings, local))
        closing = _closing(settings, options, servers)
        ledger = await stack.enter_async_context(_ledger(settings, options, servers, closing))
        supervision = _supervision(settings, options, servers, ledger)
        edge = None
        if options.has_edge:
            named = str(cluster) if cluster else None
            parts = EdgeParts(supervision.ledger, servers.database_url, local.kube, options.fleet, reports.warn, named)
            parts = parts._replace(takes_over=options.takes_over, sharing=options.sharing, extender=options.extender)
            edge = await stack.enter_async_context(kube_edge(settings, parts))
            remember(settings, cluster)
        exporter = _exporter(options, servers, ledger)
        health = partial(health_of, supervision, edge, exporter)
        url = await stack.enter_async_context(serving(options.listen, health))
        kubeconfig = edge.kubeconfig if edge else None
        rules = await _first_rules(ledger, options.fleet)
        endpoints = UpEndpoints(servers.nats_url, servers.database_url, url, kubeconfig, cluster, rules)
        measuring = measures(options.runs, servers.nats_identity, servers.database_url, ledger)
        taking = _taking(settings, options, servers, ledger)
        work = [*supervision.work(), *measuring, *taking, *servers.work, *(edge.work if edge else ())]
        work += [exporter.run()] if exporter else []
        await run_until_one_fails([_report_up(reports, endpoints), *work])


def _supervision(settings: Settings, options: UpOptions, servers: DataServers, ledger: Ledger) -> Supervision:
    """What runs the projections that the options leave to this process."""
    return Supervision(
        _placed_projections(options),
        ledger,
        servers.database_url,
        other_locks=(*(EDGE_LOCKS if options.has_edge else ()), *((EXPORT_LOCK,) if options.exports else ())),
        elsewhere=[one.name for one in all_projections() if not options.runs(one.name)],
        snapshots=snapshots_of(ledger, settings.objects_url),
    )


def _placed_projections(options: UpOptions) -> list[Projection]:
    """All projections; the one that rolls machine configuration out has the node of this process."""
    rollout = RolloutProjection(options.node or NOWHERE)
    return [rollout if one.name == rollout.name else one for one in all_projections()]


async def _first_rules(ledger: Ledger, fleet: FleetOptions | None) -> FirstRules | None:
    """Put the example's rules into force where a fleet is simulated in a ledger that has had none."""
    if fleet is None or not fleet.has_rules:
        return None
    rules = example_rules()
    since = await apply_first(ledger, rules, QUARANTINE)
    return None if since is None else FirstRules(rules.file, since)


def _exporter(options: UpOptions, servers: DataServers, ledger: Ledger) -> Exporter | None:
    if options.export is None or not options.exports:
        return None
    return Exporter(ledger, servers.database_url, options.export)


def _taking(settings: Settings, options: UpOptions, servers: DataServers, ledger: Ledger) -> list[Work]:
    """What takes snapshots and closes generations, where the settings say so."""
    taking: list[Work] = []
    if settings.objects_url is not None and options.runs(SNAPSHOTS):
        taking.append(SnapshotService(ledger, servers.nats_url, servers.database_url, settings.objects_url).run())
    closing = _closing(settings, options, servers)
    if closing is not None:
        taking.append(closing.run())
    return taking


def _closing(settings: Settings, options: UpOptions, servers: DataServers) -> ClosingService | None:
    if settings.archive is None or not options.runs(SealsProjection.name):
        return None
    return ClosingService(servers.nats_url, servers.database_url, settings.archive)


@asynccontextmanager
async def _ledger(
    settings: Settings, options: UpOptions, servers: DataServers, closing: ClosingService | None
) -> AsyncIterator[JetStreamLedger]:
    """The ledger, made where there is none; its closed generations are read from their archives.

    A process that closes generations goes on with a closing that was interrupted: nobody else may be there to do so.
    """
    identity = servers.nats_identity
    prepare = partial(
        prepare_ledger,
        servers.nats_url,
        servers.database_url,
        identity=identity,
        replicas=servers.nats_replicas,
        partitions=settings.partitions,
    )
    try:
        await prepare()
    except ClosingError:
        if closing is None or not await closing.look():
            raise
        await prepare()
    opening = connect_ledger(
        servers.nats_url,
        name="gpuledger up",
        identity=identity,
        archives=ArchivedGenerations(),
        puts_in_order=not options.only_reads,
    )
    async with opening as ledger:
        yield ledger


async def _report_up(reports: Reports, endpoints: UpEndpoints) -> None:
    """Say that everything runs; if that fails, all of it ends in an orderly way."""
    reports.up(endpoints)


@asynccontextmanager
async def _servers(settings: Settings, local: LocalServers) -> AsyncIterator[DataServers]:
    if settings.servers is not None:
        given = settings.servers
        await migrate_apart(given.database_url)
        yield DataServers(given.nats_url, given.database_url, [], given.nats_identity, given.nats_replicas)
        return
    async with local.data() as servers:
        await migrate_apart(servers.database_url)
        try:
            yield servers
        finally:
            for one in servers.work:
                one.close()  # if something else failed, it never began, and Python would complain about that


def health_of(supervision: Supervision, edge: Edge | None, exporter: Exporter | None = None) -> Health:
    """The answer of `/healthz`, by which a pod is ready: an API server may call its webhooks from then on."""
    webhooks = edge.webhooks.health() if edge and edge.webhooks else None
    problem = edge.followed.problem if edge else None
    exported = exporter.health() if exporter else None
    if exported is not None and exported.state == "stopped":
        problem = problem or exported.reason
    served = [one for one in (webhooks, edge.preflight.webhook.health() if edge and edge.preflight else None) if one]
    status, reason = _status(supervision, problem, served)
    document: dict[str, object] = {
        "status": status,
        "reason": reason,
        "generation": supervision.ledger.generation,
        "head": None if supervision.head is None else number_of(supervision.head),
        "projections": {name: found._asdict() for name, found in supervision.health().items()},
        "leaders": {name: _leader(holder) for name, holder in supervision.leaders.items()},
    }
    if edge is not None:
        document["watchers"] = {"refused_objects": refused_objects(), "reason": edge.followed.problem}
        document["statuswriter"] = edge.writer.health()._asdict()
        document["nodewriter"] = edge.nodes.health()._asdict()
        document["remediator"] = edge.remediator.health()._asdict()
        document["admission"] = webhooks._asdict() if webhooks else None
        document["preflight"] = _preflight(edge.preflight)
        document["extender"] = edge.extender.health()._asdict() if edge.extender else None
    if exported is not None:
        document["export"] = exported._asdict()
    return Health(status == OK, document)


class WebhookHealth(Protocol):
    """How webhooks stand."""

    @property
    def state(self) -> str:
        """In one word."""

    @property
    def reason(self) -> str | None:
        """What is wrong."""

    @property
    def is_ready(self) -> bool:
        """Whether they answer."""


def _status(supervision: Supervision, problem: str | None, served: Sequence[WebhookHealth]) -> tuple[str, str | None]:
    """The state as one word, and the reason unless all is well."""
    if problem is not None:
        return "failing", problem
    if not supervision.healthy:
        return _trouble(supervision), _reason(supervision)
    waiting = next((one for one in served if not one.is_ready), None)
    if waiting is not None:
        waits = f"The webhooks do not answer yet ({waiting.state})."
        return "failing" if waiting.state == "stopped" else "starting", waiting.reason or waits
    return OK, None


def _preflight(service: PreflightService | None) -> dict[str, object] | None:
    if service is None:
        return None
    webhook, coordinator = service.health()
    return {"webhook": webhook._asdict(), "coordinator": coordinator._asdict()}


def _leader(holder: LockHolder | None) -> dict[str, str | None] | None:
    if holder is None:
        return None
    return {"process": holder.process, "since": holder.since.isoformat() if holder.since else None}


def _trouble(supervision: Supervision) -> str:
    """`building`: all is well, but the rows of an older build serve still."""
    states = {found.state for found in supervision.health().values()}
    return "building" if supervision.reachable and "building" in states and "stopped" not in states else "failing"


def _reason(supervision: Supervision) -> str:
    health = supervision.health().items()
    building = [
        f"Builds the rows of {name} for this version, {found.done or 0} of {found.total or '?'} positions."
        for name, found in health
        if found.state == "building"
    ]
    stopped = [found.reason or "" for _, found in health if found.state == "stopped"]
    return " ".join([*stopped, *building]) or "The servers have not answered lately."
