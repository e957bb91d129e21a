"""Schedules the pods of the embedded API server that ask for shared devices, and is their nodes' kubelet.

It looks at the cluster again and again, and does what is left to do, so that it may end at any moment. The extender
decides about devices, and binds; this only asks it, as kube-scheduler does in a real cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp
import structlog

from gpuledger.api.conditions import rfc3339
from gpuledger.api.kinds import EVENTS, NODES, PODS
from gpuledger.edge.kube.client import KubeClient, KubeRequest, Object, Selection
from gpuledger.edge.kube.errors import KubeError, NotFoundError, RefusedError
from gpuledger.edge.kube.events import event_name, micro_time, note_of
from gpuledger.runtime.clock import Clock
from gpuledger.tools.simulation import objects
from gpuledger.tools.simulation.scheduling.decide import (
    best,
    candidates,
    explanation,
    has_to_end,
    has_to_start,
    is_waiting,
    unscheduled,
)
from gpuledger.tools.simulation.scheduling.extender_client import ExtenderAwayError, ExtenderClient

LOOK_INTERVAL_S: Final = 0.5

log = structlog.get_logger("gpuledger.simulation")


class SharingScheduler:
    """Schedules the pods of one `schedulerName`; `url` gives the extender's address once it listens."""

    def __init__(
        self,
        client: KubeClient,
        url: Callable[[], Awaitable[str]],
        scheduler: str,
        clock: Clock,
        *,
        look_interval_s: float = LOOK_INTERVAL_S,
    ) -> None:
        self._client = client
        self._url = url
        self._scheduler = scheduler
        self._clock = clock
        self._look_interval_s = look_interval_s
        self._problem = ""

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with aiohttp.ClientSession() as session:
            extender = ExtenderClient(session, await self._url())
            while True:
                try:
                    await self._look(extender)
                    self._problem = ""
                except (KubeError, ExtenderAwayError) as error:
                    self._note(str(error))
                await asyncio.sleep(self._look_interval_s)

    async def _look(self, extender: ExtenderClient) -> None:
        pods = (await self._client.list(PODS, Selection(fields=f"spec.schedulerName={self._scheduler}"))).items
        for pod in pods:
            if has_to_end(pod):
                await self._end(pod)
            elif has_to_start(pod):
                await self._set_status(pod, objects.running(pod, self._clock()))
        waiting = [pod for pod in pods if is_waiting(pod)]
        if waiting:
            nodes = (await self._client.list(NODES)).items
            for pod in waiting:
                await self._schedule(pod, nodes, extender)

    async def _schedule(self, pod: Object, nodes: list[Object], extender: ExtenderClient) -> None:
        """One attempt at a pod: filter, prioritize, bind."""
        found = candidates(pod, nodes)
        fits, failed = await extender.filter(pod, found.names) if found.names else ([], {})
        if not fits:
            await self._not_scheduled(pod, explanation([*found.refused.values(), *failed.values()]))
            return
        node = best(fits, await extender.prioritize(pod, fits))
        error = await extender.bind(pod, node)
        if error:
            log.info("simulation.bind-failed", pod=pod["metadata"]["name"], node=node, reason=error)
            return
        message = f"Successfully assigned {pod['metadata']['namespace']}/{pod['metadata']['name']} to {node}"
        await self._event(pod, "Normal", "Scheduled", "Binding", message)

    async def _not_scheduled(self, pod: Object, message: str) -> None:
        status = unscheduled(pod, message, rfc3339(self._clock()))
        if status is not None:
            await self._set_status(pod, status)
            await self._event(pod, "Warning", "FailedScheduling", "Scheduling", message)

    async def _set_status(self, pod: Object, status: Object) -> None:
        metadata = pod["metadata"]
        body = {"metadata": {"uid": metadata["uid"]}, "status": status}
        try:
            await self._client.merge_patch(PODS, metadata["name"], body, metadata["namespace"], subresource="status")
        except RefusedError as error:
            log.info("simulation.status-refused", pod=metadata["name"], reason=str(error))

    async def _end(self, pod: Object) -> None:
        metadata = pod["metadata"]
        path = f"{PODS.path(metadata['namespace'])}/{metadata['name']}"
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        request = KubeRequest(f'delete pod "{metadata["name"]}"', "DELETE", path, {}, body)
        try:
            await self._client.send(request)
        except NotFoundError:
            return

    async def _event(self, pod: Object, kind: str, reason: str, action: str, note: str) -> None:
        metadata, now = pod["metadata"], self._clock()
        regarding = {"apiVersion": PODS.api_version, "kind": PODS.kind, "namespace": metadata["namespace"]}
        event = {
            "metadata": {
                "name": event_name(metadata["name"], metadata["uid"], reason, micro_time(now)),
                "namespace": metadata["namespace"],
            },
            "eventTime": micro_time(now),
            "reportingController": self._scheduler,
            "reportingInstance": self._scheduler,
            "action": action,
            "reason": reason,
            "regarding": {**regarding, "name": metadata["name"], "uid": metadata["uid"]},
            "note": note_of(note),
            "type": kind,
        }
        try:
            await self._client.create(EVENTS, event)
        except RefusedError as error:
            log.info("simulation.event-refused", pod=metadata["name"], reason=str(error))

    def _note(self, problem: str) -> None:
        """Log a problem once."""
        if problem != self._problem:
            log.info("simulation.scheduler-waits", reason=problem)
        self._problem = problem
