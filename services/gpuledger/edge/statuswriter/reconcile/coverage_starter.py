"""Starts the Job `gpu-nfd-coverage` that the chart keeps waiting, once a node's inventory stays incomplete.

The Job compares what the ledger does not have: every label, and GPUs of other PCI classes. This module never makes a
Job: who may create one may run anything there, as any service account. It lets one that waits go.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import structlog

from gpuledger.api.kinds import JOBS
from gpuledger.api.labels import COVERAGE_JOBS
from gpuledger.edge.kube.client import Selection
from gpuledger.edge.kube.errors import ConflictError, KubeError, NotFoundError
from gpuledger.edge.statuswriter.desired.coverage_jobs import (
    CoverageJob,
    coverage_job,
    job_to_start,
    nodes_to_check,
    results,
)
from gpuledger.edge.statuswriter.metrics.writer import HANDLER_ERRORS
from gpuledger.edge.statuswriter.reconcile.periodic import Periodic

HANDLER: Final = "coverage"

log = structlog.get_logger("gpuledger.statuswriter")


class CoverageStarter(Periodic):
    """Looks at the Jobs in a namespace while an inventory stays incomplete; `announce` takes what ended."""

    _announced: frozenset[str] = frozenset()

    async def run(self, namespace: str) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._context.settings.coverage_check_s)
            overdue = self._overdue()
            if overdue:
                try:
                    await self._check(namespace, overdue)
                except (ConflictError, NotFoundError) as error:
                    log.info("coverage.retried", reason=str(error))
                except KubeError as error:
                    HANDLER_ERRORS.labels(HANDLER).inc()
                    log.warning("coverage.failed", namespace=namespace, reason=str(error))

    def _overdue(self) -> Mapping[str, datetime]:
        after = timedelta(seconds=self._context.settings.coverage_after_s)
        return nodes_to_check(self._state, self._context.clock(), after)

    async def _check(self, namespace: str, overdue: Mapping[str, datetime]) -> None:
        async with self._breaker.request():
            found = await self._context.client.collect(JOBS, coverage_job, Selection(namespace, COVERAGE_JOBS))
        self._announce_results(found.items, overdue)
        repeat = timedelta(seconds=self._context.settings.coverage_repeat_s)
        job = job_to_start(found.items, overdue, self._context.clock(), repeat)
        if job is None:
            return
        patch = {"metadata": {"resourceVersion": job.version}, "spec": {"suspend": False}}
        async with self._breaker.request():
            await self._context.client.merge_patch(JOBS, job.name, patch, job.namespace)
        log.info("coverage.started", job=job.name, nodes=len(overdue))

    def _announce_results(self, jobs: list[CoverageJob], overdue: Mapping[str, datetime]) -> None:
        """Once for each Job; the Event of a restarted status writer has the same name, and is there already."""
        ended = {one.name: one for one in jobs if one.ended_at is not None}
        for name in ended.keys() - self._announced:
            for occurrence in results(ended[name], overdue):
                self._announce(occurrence)
        self._announced = frozenset(ended)
