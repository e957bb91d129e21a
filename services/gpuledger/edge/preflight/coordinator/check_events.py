"""Writes one Kubernetes Event for each check of a pod that failed, so that `kubectl describe pod` says why it waits.

The name of an Event follows from its pod and check: whoever leads next finds what was written before.
"""

from typing import Any, Final

import structlog

from gpuledger.api.kinds import EVENT_REPORTER, EVENTS, PODS
from gpuledger.api.reasons import EventReason
from gpuledger.domain.fact import time_of_ns
from gpuledger.edge.kube.circuit_breaker import SERVER_TROUBLE
from gpuledger.edge.kube.errors import AlreadyExistsError, KubeError
from gpuledger.edge.kube.events import PendingQueue, event_name, micro_time, note_of
from gpuledger.edge.preflight.coordinator import metrics
from gpuledger.edge.preflight.coordinator.failures import CheckFailure
from gpuledger.edge.preflight.coordinator.sizes import CoordinatorTools

INSTANCE: Final = "gpuledger-preflight"
ACTION: Final = "Check"

log = structlog.get_logger("gpuledger.preflight")


class CheckEvents:
    """Events about failed checks, of which a bounded number waits."""

    def __init__(self, tools: CoordinatorTools) -> None:
        self._tools = tools
        self._pending = PendingQueue(tools.settings.events_waiting_max)
        self._failures: dict[str, CheckFailure] = {}
        self._tries: dict[str, int] = {}

    def add(self, failures: list[CheckFailure]) -> None:
        """Write Events about these, unless they are old."""
        for one in failures:
            if self._is_stale(one):
                metrics.EVENTS.labels("stale").inc()
                continue
            name = name_of(one)
            self._failures[name] = one
            if dropped := self._pending.add(name):
                self._forget(dropped)
                metrics.EVENTS.labels("dropped").inc()

    async def run(self) -> None:
        """Write Events for ever."""
        while True:
            name = await self._pending.take()
            failure = self._failures.get(name)
            if failure is not None:
                await self._try(name, failure)

    async def _try(self, name: str, failure: CheckFailure) -> None:
        try:
            async with self._tools.breaker.request():
                await self._tools.client.create(EVENTS, event_of(name, failure))
        except AlreadyExistsError:
            self._over(name, "known")
        except KubeError as error:
            self._failed(name, error)
        else:
            self._over(name, "recorded")

    def _failed(self, name: str, error: KubeError) -> None:
        tries = self._tries[name] = self._tries.get(name, 0) + 1
        if isinstance(error, SERVER_TROUBLE) and tries < self._tools.settings.events_tried_max:
            self._pending.add(name)
            return
        self._over(name, "failed")
        log.warning("preflight.event-failed", name=name, reason=str(error))

    def _over(self, name: str, outcome: str) -> None:
        self._forget(name)
        metrics.EVENTS.labels(outcome).inc()

    def _forget(self, name: str) -> None:
        self._failures.pop(name, None)
        self._tries.pop(name, None)

    def _is_stale(self, failure: CheckFailure) -> bool:
        happened_at = min(failure.failed_at, time_of_ns(failure.recorded_ns))
        return (self._tools.clock() - happened_at).total_seconds() > self._tools.settings.event_age_max_s


def name_of(failure: CheckFailure) -> str:
    """The name of the Event, within the pod's namespace."""
    return event_name(failure.pod.partition("/")[2], failure.pod, failure.uid, failure.check)


def event_of(name: str, failure: CheckFailure) -> dict[str, Any]:
    """The Event, as `events.k8s.io/v1` takes it."""
    namespace, _, pod = failure.pod.partition("/")
    regarding = {"apiVersion": PODS.api_version, "kind": PODS.kind, "namespace": namespace, "name": pod}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": micro_time(failure.failed_at),
        "reportingController": EVENT_REPORTER,
        "reportingInstance": INSTANCE,
        "action": ACTION,
        "reason": EventReason.PREFLIGHT_CHECK_FAILED.value,
        "regarding": {**regarding, "uid": failure.uid},
        "note": note_of(failure.note),
        "type": "Warning",
    }
