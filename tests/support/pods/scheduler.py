"""What a kube-scheduler of the chart does for the pods that name it: it asks the release's extender, which binds them.

The image of a kube-scheduler cannot be run from our image's files, so the cluster stands for it as well; what it asks
is the extender in its own pod, by its Service.
"""

from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from gpuledger.api.conditions import rfc3339
from gpuledger.api.kinds import PODS
from gpuledger.edge.kube.client import KubeClient
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.simulation.scheduling.decide import best, candidates, explanation, unscheduled
from gpuledger.tools.simulation.scheduling.extender_client import ExtenderAwayError, ExtenderClient

SCHEDULER: Final = "gpuledger-scheduler"
SERVICE: Final = "gpuledger-extender"

Object = dict[str, Any]


class ExtendedScheduler:
    """Schedules pods with `schedulerName: gpuledger-scheduler`."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def schedule(
        self, pod: Object, nodes: list[Object], services: Mapping[tuple[str, str], tuple[str, int]]
    ) -> None:
        """One attempt at a pod; without an extender that answers it waits."""
        place = next((place for (_, name), place in services.items() if name == SERVICE), None)
        if place is None:
            return
        async with aiohttp.ClientSession() as session:
            extender = ExtenderClient(session, f"http://{place[0]}:{place[1]}")
            try:
                await self._ask(pod, nodes, extender)
            except ExtenderAwayError as error:
                await self._refuse(pod, str(error))

    async def _ask(self, pod: Object, nodes: list[Object], extender: ExtenderClient) -> None:
        found = candidates(pod, nodes)
        fits, failed = await extender.filter(pod, found.names) if found.names else ([], {})
        if not fits:
            await self._refuse(pod, explanation([*found.refused.values(), *failed.values()]))
            return
        error = await extender.bind(pod, best(fits, await extender.prioritize(pod, fits)))
        if error:
            await self._refuse(pod, error)

    async def _refuse(self, pod: Object, message: str) -> None:
        """Say why the pod waits, as its condition."""
        status = unscheduled(pod, message, rfc3339(system_clock()))
        if status is not None:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            await self._client.merge_patch(PODS, name, {"status": status}, namespace, subresource="status")
