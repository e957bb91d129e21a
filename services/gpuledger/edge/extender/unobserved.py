"""Releases the devices of bound pods that ended before watchers saw them: nobody else would ever record their end.

Watchers record the end of what they have recorded. A pod that comes and goes while they are away is in no list of
theirs, and would hold its devices for good.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

import structlog

from gpuledger.domain.sharing.rows import PodState, SharedPod
from gpuledger.edge.effects.tools import EffectTools
from gpuledger.edge.extender.cluster import PodWriter
from gpuledger.edge.extender.settings import ExtenderSettings
from gpuledger.edge.extender.settlement import POD_GONE
from gpuledger.edge.extender.state import ExtenderState
from gpuledger.edge.kube.errors import KubeError
from gpuledger.events.sharing import PodDevicesReleased
from gpuledger.runtime.clock import NewId, random_id

MESSAGE: Final = "The pod has ended before watchers saw it."

log = structlog.get_logger("gpuledger.extender")


class UnobservedPods:
    """Looks up bound pods that watchers have not seen for `unobserved_max_s`, every `unobserved_check_s`."""

    def __init__(
        self,
        state: ExtenderState,
        writer: PodWriter,
        tools: EffectTools[ExtenderSettings],
        new_id: NewId = random_id,
    ) -> None:
        self._state = state
        self._writer = writer
        self._tools = tools
        self._new_id = new_id

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.look()
            await asyncio.sleep(self._tools.settings.unobserved_check_s)

    async def look(self) -> None:
        """One round, a pod at a time; it ends where Kubernetes does not answer."""
        try:
            for row in list(self._suspects()):
                await self._look_up(row)
        except KubeError as error:
            log.warning("extender.unobserved-unsettled", reason=str(error))

    def _suspects(self) -> Iterator[SharedPod]:
        """Pods that are bound, as only this service says, and for so long that watchers should have seen them."""
        now, longest_s = self._tools.clock(), self._tools.settings.unobserved_max_s
        for row in self._state.sharing.shared_pod.rows.values():
            if row.bound_at is None or row.observed_at is not None or row.state != PodState.BOUND:
                continue
            if (now - row.bound_at).total_seconds() >= longest_s:
                yield row

    async def _look_up(self, row: SharedPod) -> None:
        namespace, _, name = row.pod.partition("/")
        pod = await self._writer.get(namespace, name)
        if pod is not None and pod.uid == row.uid and not pod.has_ended:
            return
        current = self._state.pod(row.uid)
        if current is None or current.observed_at is not None or current.state != PodState.BOUND:
            return
        data = PodDevicesReleased(uid=row.uid, node=row.node or "", reason=POD_GONE, message=MESSAGE)
        await self._tools.recorder.record_first(row.pod, data, self._new_id())
        log.info("extender.unobserved-released", pod=row.pod, node=row.node)
