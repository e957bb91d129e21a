"""Pods of gangs that go through preflight checks, as events, and what these cost. Always the same."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from bench.all_projections import project
from bench.fleet_day import BEGIN, Happening, numbered
from bench.report import Figure
from bench.scale_model import CHECKS, GANG_PODS, checked_events
from bench.servers import unsynced_nats
from bench.sizes import database_bytes, stream_bytes
from gpuledger.events.preflight import (
    GangConfigured,
    GangDissolved,
    GangPeer,
    PodPreflightGone,
    PodPreflightObserved,
    PreflightCheck,
    PreflightResult,
)
from gpuledger.ledger.jetstream import connect_ledger

WATCHER: Final = "/watchers/preflight-pods"
COORDINATOR: Final = "/services/preflight"
CHECK_TAKES: Final = timedelta(seconds=30)
"""How long each check runs."""

NAMES: Final = ("dcgm-diag", "nccl-loopback", "nccl-allreduce")
PER_PUBLISH: Final = 1_000


async def checked_pods(database_url: str, gangs: int) -> list[Figure]:
    """What a pod with checks costs in the log and in PostgreSQL."""
    events = list(numbered(_in_order(gangs)))
    pods = gangs * GANG_PODS
    with unsynced_nats() as server:
        async with connect_ledger(server.url, name="bench") as ledger:
            for at in range(0, len(events), PER_PUBLISH):
                await ledger.publish_many(events[at : at + PER_PUBLISH])
            log_bytes, empty_bytes = await stream_bytes(server), database_bytes(database_url)
            await project(ledger, database_url, await ledger.head())
            table_bytes = database_bytes(database_url) - empty_bytes
    return [
        Figure("a pod with checks", len(events) / pods, "events", "the model", checked_events(CHECKS, GANG_PODS), None),
        Figure("a pod with checks, log", log_bytes / pods, "bytes", "an event", log_bytes / len(events), None),
        Figure("a pod with checks, tables", table_bytes / pods, "bytes", "in the log", log_bytes / pods, None),
    ]


def _in_order(gangs: int) -> Iterator[Happening]:
    """One gang after the other goes through its checks."""
    for gang in range(gangs):
        begins, name = BEGIN + timedelta(minutes=gang), f"job-{gang}"
        pods = [f"job-{gang}-worker-{rank}" for rank in range(GANG_PODS)]
        peers = tuple(
            GangPeer(pod=pod, uid=_uid(pod), ip=f"10.0.{gang % 256}.{rank}", node=f"node-{rank}")
            for rank, pod in enumerate(pods)
        )
        for found in (peers[:1], peers):
            yield Happening(begins, COORDINATOR, f"training/{name}", _configured(name, found))
        for rank, pod in enumerate(pods):
            yield from _life(begins, pod, name, f"node-{rank}")
        yield Happening(begins + timedelta(hours=1), COORDINATOR, f"training/{name}", GangDissolved(removed=True))


def _configured(gang: str, peers: tuple[GangPeer, ...]) -> GangConfigured:
    return GangConfigured(
        config_map=f"preflight-{gang}",
        source="scheduling-group/job",
        expected=GANG_PODS,
        peers=peers,
        complete=len(peers) == GANG_PODS,
        waited_s=12.5,
    )


def _life(begins: datetime, pod: str, gang: str, node: str) -> Iterator[Happening]:
    """A pod is seen, gets a node, runs each check to its end, and goes."""
    waiting = tuple(PreflightCheck(name=name, state="waiting") for name in NAMES)
    seconds, subject = count(1), f"training/{pod}"

    def seen(checks: tuple[PreflightCheck, ...], on: str | None = node, *, done: bool = False) -> Happening:
        data = PodPreflightObserved(uid=_uid(pod), node=on, ip=on and "10.0.0.1", gang=gang, checks=checks, done=done)
        return Happening(begins + timedelta(seconds=next(seconds)), WATCHER, subject, data)

    yield seen(waiting, None)
    yield seen(waiting)
    for place, name in enumerate(NAMES):
        at = begins + place * CHECK_TAKES
        before = tuple(_passed(one, begins + number * CHECK_TAKES) for number, one in enumerate(NAMES[:place]))
        yield seen((*before, PreflightCheck(name=name, state="running", started_at=at), *waiting[place + 1 :]))
        yield seen((*before, _passed(name, at), *waiting[place + 1 :]), done=place == len(NAMES) - 1)
    yield Happening(begins + timedelta(hours=1), WATCHER, subject, PodPreflightGone(uid=_uid(pod)))


def _passed(name: str, began: datetime) -> PreflightCheck:
    result = PreflightResult(outcome="passed", message=f"{name} found nothing wrong with 8 GPUs", duration_s=29.5)
    return PreflightCheck(
        name=name,
        state="ended",
        exit_code=0,
        reason="Completed",
        started_at=began,
        ended_at=began + CHECK_TAKES,
        result=result,
    )


def _uid(pod: str) -> str:
    """As long as one of Kubernetes."""
    return str(uuid5(NAMESPACE_OID, pod))
