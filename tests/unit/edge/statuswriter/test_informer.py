"""An informer against a scripted API server: what it reports of a kind that a plain cluster does not have."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from structlog.types import EventDict

from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.statuswriter.cache.informer import Informer
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.objects import Kind
from gpuledger.edge.statuswriter.reconcile.planner import Planner
from gpuledger.edge.statuswriter.reconcile.writer import ObjectWriter
from gpuledger.edge.statuswriter.settings import StatusWriterSettings, WriteContext
from gpuledger.runtime.backoff import Backoff, no_jitter
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.tasks import end
from support.scripted_api import ScriptedApi, listing, refuse
from support.waiting import eventually

ABSENT = [refuse(404, "NotFound") for _ in range(5)]
SETTINGS = StatusWriterSettings(backoff=Backoff(first_s=0.001, max_s=0.001))


class NoWriter(ObjectWriter):
    """Takes the keys of the objects to write, and writes none."""

    def __init__(self) -> None: ...

    def enqueue_all(self, keys: Any) -> None: ...


@asynccontextmanager
async def informed(api: ScriptedApi, requests: int) -> AsyncIterator[list[EventDict]]:
    """Run an informer of ModuleConfigs until the server got so many requests; gives what it logged."""
    now: Callable[[], float] = asyncio.get_running_loop().time
    async with api.serving() as client:
        context = WriteContext(client, SETTINGS, system_clock, now, no_jitter)
        planner = Planner(DesiredState(), node_feature_rule())

        async def has_asked() -> bool:
            return len(api.requests) >= requests

        with capture_logs() as logs:
            running = asyncio.create_task(Informer(Kind.MODULE, context, planner, NoWriter()).run())
            try:
                await eventually(has_asked)
                yield [one for one in logs if one["event"].startswith("watch.")]
            finally:
                await end([running])


def errors() -> float:
    labels = {"handler": "watch moduleconfigs"}
    return REGISTRY.get_sample_value("gpu_inventory_handler_errors_total", labels) or 0.0


async def test_a_missing_kind_is_logged_once_and_is_no_error() -> None:
    before, api = errors(), ScriptedApi(*ABSENT, refuse(503), *ABSENT)
    async with informed(api, 2 * len(ABSENT) + 1) as logs:
        absences = [(one["log_level"], one["resource"]) for one in logs if one["event"] == "watch.kind-absent"]
        assert absences == [("info", "moduleconfigs.deckhouse.io")]
        failures = [one for one in logs if one["event"] == "watch.interrupted"]
        assert 1 <= len(failures) == errors() - before <= len(api.requests) - 2 * len(ABSENT)


async def test_a_kind_that_goes_away_again_is_logged_again() -> None:
    served = [listing(version="5"), refuse(410, "Expired")]
    async with informed(ScriptedApi(*ABSENT, *served, *ABSENT), 12) as logs:
        assert [one["event"] for one in logs].count("watch.kind-absent") == 2
