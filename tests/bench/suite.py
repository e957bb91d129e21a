"""All figures of one run, in order."""

import argparse
import asyncio
import gc
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import psycopg
import structlog
from rich.console import Console

from bench import fleet
from bench.admission import FULL as ADMISSION
from bench.admission import QUICK as QUICK_ADMISSION
from bench.admission import AdmissionSizes, admission
from bench.agent import FULL as AGENT
from bench.agent import QUICK as QUICK_AGENT
from bench.agent import AgentSizes, agent
from bench.agents import FULL as AGENTS
from bench.agents import QUICK as QUICK_AGENTS
from bench.agents import AgentsSizes, agents
from bench.all_projections import FULL as ALL_PROJECTIONS
from bench.all_projections import QUICK as QUICK_ALL_PROJECTIONS
from bench.all_projections import AllProjectionsSizes, all_at_once
from bench.annotating import FULL as ANNOTATING
from bench.annotating import QUICK as QUICK_ANNOTATING
from bench.annotating import AnnotatingSizes, annotating
from bench.as_recorded import FULL as AS_RECORDED
from bench.as_recorded import QUICK as QUICK_AS_RECORDED
from bench.as_recorded import AsRecordedSizes, as_recorded
from bench.availability import FULL as AVAILABILITY
from bench.availability import QUICK as QUICK_AVAILABILITY
from bench.availability import AvailabilitySizes, availability
from bench.cluster import FULL as CLUSTER
from bench.cluster import QUICK as QUICK_CLUSTER
from bench.cluster import ClusterSizes, cluster
from bench.config_agent import FULL as CONFIG_AGENT
from bench.config_agent import QUICK as QUICK_CONFIG_AGENT
from bench.config_agent import ConfigAgentSizes, config_agent
from bench.extender import FULL as EXTENDER
from bench.extender import QUICK as QUICK_EXTENDER
from bench.extender import ExtenderSizes, extender
from bench.from_nothing import FULL as FROM_NOTHING
from bench.from_nothing import QUICK as QUICK_FROM_NOTHING
from bench.from_nothing import FromNothingSizes, from_nothing
from bench.gangs import FULL as GANGS
from bench.gangs import QUICK as QUICK_GANGS
from bench.gangs import GangSizes, gangs
from bench.health_reports import FULL as HEALTH_REPORTS
from bench.health_reports import QUICK as QUICK_HEALTH_REPORTS
from bench.health_reports import ReportsSizes, health_reports
from bench.history import FULL as HISTORY
from bench.history import QUICK as QUICK_HISTORY
from bench.history import HistorySizes, history
from bench.kube import FULL as EDGE
from bench.kube import QUICK as QUICK_EDGE
from bench.kube import KubeSizes, kube
from bench.latency import latency
from bench.memory import memory
from bench.partitions import FULL as PARTITIONS
from bench.partitions import QUICK as QUICK_PARTITIONS
from bench.partitions import PartitionsSizes, partitions
from bench.past import FULL as PAST
from bench.past import QUICK as QUICK_PAST
from bench.past import past
from bench.past_data import PastSizes
from bench.pools import FULL as POOLS
from bench.pools import QUICK as QUICK_POOLS
from bench.pools import pools
from bench.pools_edge import PoolsSizes
from bench.preflight import FULL as PREFLIGHT
from bench.preflight import QUICK as QUICK_PREFLIGHT
from bench.preflight import PreflightSizes, preflight
from bench.quarantine import FULL as QUARANTINE
from bench.quarantine import QUICK as QUICK_QUARANTINE
from bench.quarantine import QuarantineSizes, quarantine
from bench.report import Figure, show, write
from bench.restarting import FULL as RESTARTING
from bench.restarting import QUICK as QUICK_RESTARTING
from bench.restarting import RestartingSizes, restarting
from bench.resting import FULL as RESTING
from bench.resting import QUICK as QUICK_RESTING
from bench.resting import RestingSizes, resting
from bench.rollout import FULL as ROLLOUT
from bench.rollout import QUICK as QUICK_ROLLOUT
from bench.rollout import RolloutSizes, rollout
from bench.scale import FULL as SCALE
from bench.scale import QUICK as QUICK_SCALE
from bench.scale import ScaleSizes, scale
from bench.scheduling import FULL as SCHEDULING
from bench.scheduling import QUICK as QUICK_SCHEDULING
from bench.scheduling import SchedulingSizes, scheduling
from bench.service_process import FULL as SERVICE_PROCESS
from bench.service_process import QUICK as QUICK_SERVICE_PROCESS
from bench.service_process import ServiceSizes, service_process
from bench.setting_up import FULL as SETTING_UP
from bench.setting_up import QUICK as QUICK_SETTING_UP
from bench.setting_up import SettingUpSizes, setting_up
from bench.sharing import FULL as SHARING
from bench.sharing import QUICK as QUICK_SHARING
from bench.sharing import SharingSizes, sharing
from bench.sql_at import sql_at
from bench.subjects import FULL as SUBJECTS
from bench.subjects import QUICK as QUICK_SUBJECTS
from bench.subjects import SubjectsSizes, subjects
from bench.throughput import projecting, publishing
from gpuledger.db.migrate import migrate
from gpuledger.runtime.garbage import short_walks
from gpuledger.runtime.settings import PARTITIONS as PARTITIONS_VARIABLE
from support import servers


@dataclass(frozen=True)
class Sizes:
    """How many events each figure takes; `rounds` is odd, because medians are taken."""

    rounds: int = 3
    synced: int = 6_000
    unsynced: int = 40_000
    projected: int = 100_000
    library: int = 5_000
    paced_s: float = 10.0
    memory: int = 1_000_000
    kube: KubeSizes = EDGE
    availability: AvailabilitySizes = AVAILABILITY
    admission: AdmissionSizes = ADMISSION
    preflight: PreflightSizes = PREFLIGHT
    gangs: GangSizes = GANGS
    pools: PoolsSizes = POOLS
    agents: AgentsSizes = AGENTS
    all_projections: AllProjectionsSizes = ALL_PROJECTIONS
    from_nothing: FromNothingSizes = FROM_NOTHING
    sharing: SharingSizes = SHARING
    resting: RestingSizes = RESTING
    health_reports: ReportsSizes = HEALTH_REPORTS
    agent: AgentSizes = AGENT
    config_agent: ConfigAgentSizes = CONFIG_AGENT
    setting_up: SettingUpSizes = SETTING_UP
    annotating: AnnotatingSizes = ANNOTATING
    cluster: ClusterSizes = CLUSTER
    restarting: RestartingSizes = RESTARTING
    scale: ScaleSizes = SCALE
    as_recorded: AsRecordedSizes = AS_RECORDED
    subjects: SubjectsSizes = SUBJECTS
    history: HistorySizes = HISTORY
    partitions: PartitionsSizes = PARTITIONS
    past: PastSizes = PAST
    quarantine: QuarantineSizes = QUARANTINE
    extender: ExtenderSizes = EXTENDER
    scheduling: SchedulingSizes = SCHEDULING
    rollout: RolloutSizes = ROLLOUT
    service_process: ServiceSizes = SERVICE_PROCESS


FULL = Sizes()
QUICK = Sizes(
    rounds=1,
    synced=300,
    unsynced=1_000,
    projected=2_000,
    library=200,
    paced_s=0.5,
    memory=5_000,
    kube=QUICK_EDGE,
    availability=QUICK_AVAILABILITY,
    admission=QUICK_ADMISSION,
    preflight=QUICK_PREFLIGHT,
    gangs=QUICK_GANGS,
    pools=QUICK_POOLS,
    agents=QUICK_AGENTS,
    all_projections=QUICK_ALL_PROJECTIONS,
    from_nothing=QUICK_FROM_NOTHING,
    sharing=QUICK_SHARING,
    resting=QUICK_RESTING,
    health_reports=QUICK_HEALTH_REPORTS,
    agent=QUICK_AGENT,
    config_agent=QUICK_CONFIG_AGENT,
    setting_up=QUICK_SETTING_UP,
    annotating=QUICK_ANNOTATING,
    cluster=QUICK_CLUSTER,
    restarting=QUICK_RESTARTING,
    scale=QUICK_SCALE,
    as_recorded=QUICK_AS_RECORDED,
    subjects=QUICK_SUBJECTS,
    history=QUICK_HISTORY,
    partitions=QUICK_PARTITIONS,
    past=QUICK_PAST,
    quarantine=QUICK_QUARANTINE,
    extender=QUICK_EXTENDER,
    scheduling=QUICK_SCHEDULING,
    rollout=QUICK_ROLLOUT,
    service_process=QUICK_SERVICE_PROCESS,
)
NAMES = (
    "publishing",
    "projecting",
    "latency",
    "memory",
    "kube",
    "availability",
    "admission",
    "preflight",
    "pools",
    "agents",
    "all-projections",
    "from-nothing",
    "sharing",
    "resting",
    "health-reports",
    "agent",
    "config-agent",
    "setting-up",
    "cluster",
    "restarting",
    "sql-at",
    "scale",
    "as-recorded",
    "subjects",
    "history",
    "partitions",
    "past",
    "quarantine",
    "extender",
    "scheduling",
    "rollout",
    "service-process",
)

_progress = Console(stderr=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the file."""
    parser = argparse.ArgumentParser(description="Measure gpuledger beside its ceilings.")
    parser.add_argument("--quick", action="store_true", help="small numbers: shows that it runs, measures nothing")
    parser.add_argument("--only", action="append", choices=NAMES, help="only these figures")
    parser.add_argument("--log", type=int, metavar="EVENTS", help="events in the longer log of `restarting` and `past`")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where `past` keeps its data, and finds it again")
    parser.add_argument("--partitions", type=int, default=1, help="how many partitions new ledgers have (1)")
    given = parser.parse_args(arguments)
    os.environ[PARTITIONS_VARIABLE] = str(given.partitions)
    logging.getLogger("gpuledger").setLevel(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    sizes, began = QUICK if given.quick else FULL, perf_counter()
    if given.log:
        longer = replace(sizes.restarting, long_events=given.log)
        sizes = replace(sizes, restarting=longer, past=sizes.past._replace(events=given.log))
    if given.data:
        sizes = replace(sizes, past=sizes.past._replace(folder=given.data))
    figures = run(sizes, given.only or NAMES)
    show(figures, given.partitions)
    about = {"quick": given.quick, "seed": fleet.SEED, "sizes": asdict(sizes), "partitions": given.partitions}
    write(figures, {**about, "seconds": perf_counter() - began})


def run(sizes: Sizes, names: Iterable[str]) -> list[Figure]:
    """The figures of these names."""
    figures: list[Figure] = []
    with short_walks(), servers.postgres_server() as server:
        for name in names:
            _rest(server.url)
            began = perf_counter()
            with servers.fresh_database(server.url) as database_url:
                migrate(database_url)
                figures += asyncio.run(_measure(name, sizes, database_url))
            _progress.print(f"{name}: {perf_counter() - began:.0f} s")
    return figures


def _rest(database_url: str) -> None:
    """Have written what the figure before left in memory, or its disk writes would be measured as the next one's."""
    gc.collect()
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    os.sync()


async def _preflight(database_url: str, sizes: Sizes) -> list[Figure]:
    return [*await preflight(sizes.preflight), *await gangs(database_url, sizes.gangs)]


def _measure(name: str, sizes: Sizes, database_url: str) -> Coroutine[None, None, list[Figure]]:
    measures: dict[str, Callable[[], Coroutine[None, None, list[Figure]]]] = {
        "publishing": lambda: publishing(sizes.synced, sizes.unsynced, sizes.rounds),
        "projecting": lambda: projecting(database_url, sizes.projected, sizes.library, sizes.rounds),
        "latency": lambda: latency(database_url, sizes.paced_s, sizes.rounds),
        "memory": lambda: memory(database_url, sizes.memory),
        "kube": lambda: kube(database_url, sizes.kube),
        "availability": lambda: availability(database_url, sizes.availability, sizes.rounds),
        "admission": lambda: admission(sizes.admission),
        "preflight": lambda: _preflight(database_url, sizes),
        "pools": lambda: pools(database_url, sizes.pools),
        "agents": lambda: agents(database_url, sizes.agents),
        "all-projections": lambda: all_at_once(database_url, sizes.all_projections),
        "from-nothing": lambda: from_nothing(database_url, sizes.from_nothing, sizes.rounds),
        "sharing": lambda: sharing(database_url, sizes.sharing, sizes.rounds),
        "resting": lambda: resting(database_url, sizes.resting),
        "health-reports": lambda: health_reports(sizes.health_reports),
        "agent": lambda: agent(sizes.agent),
        "config-agent": lambda: config_agent(sizes.config_agent),
        "setting-up": lambda: _setting_up(database_url, sizes),
        "cluster": lambda: cluster(database_url, sizes.cluster),
        "restarting": lambda: restarting(database_url, sizes.restarting),
        "sql-at": lambda: sql_at(database_url, sizes.memory),
        "scale": lambda: scale(database_url, sizes.scale),
        "as-recorded": lambda: as_recorded(database_url, sizes.as_recorded),
        "subjects": lambda: subjects(database_url, sizes.subjects),
        "history": lambda: history(database_url, sizes.history),
        "partitions": lambda: partitions(sizes.partitions, sizes.rounds),
        "past": lambda: past(sizes.past),
        "quarantine": lambda: quarantine(database_url, sizes.quarantine),
        "extender": lambda: extender(database_url, sizes.extender),
        "scheduling": lambda: scheduling(sizes.scheduling, sizes.rounds),
        "rollout": lambda: rollout(sizes.rollout, sizes.rounds),
        "service-process": lambda: service_process(database_url, sizes.service_process),
    }
    return measures[name]()


async def _setting_up(database_url: str, sizes: Sizes) -> list[Figure]:
    """From the orders alone, and from the annotation to which they are due."""
    return [*await setting_up(sizes.setting_up), *await annotating(database_url, sizes.annotating)]
