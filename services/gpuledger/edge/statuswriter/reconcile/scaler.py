"""Keeps the number of pods of our own Deployments as the setting `highAvailability` decides.

It reads each Deployment now and then, decides anew each time, and writes its scale alone: that changes how many pods
there are, and nothing of what they run. The pod that scales down may itself be the one that ends; whoever leads next
finds nothing to do. What the cluster refuses is shown in the condition of the module.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from gpuledger.api.kinds import DEPLOYMENTS, MODULE_CONFIG
from gpuledger.api.labels import ANNOTATION_REPLICAS
from gpuledger.api.reasons import EventReason
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ConflictError, KubeError, TransientError
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.statuswriter.cache.objects import ObjectState
from gpuledger.edge.statuswriter.desired.module import news_of
from gpuledger.edge.statuswriter.desired.replicas import given_replicas, scaled_to
from gpuledger.edge.statuswriter.events.series import Occurrence
from gpuledger.edge.statuswriter.metrics.writer import HANDLER_ERRORS
from gpuledger.edge.statuswriter.objects import Document, Key, Kind
from gpuledger.edge.statuswriter.reconcile.periodic import Periodic, PeriodicContext
from gpuledger.edge.statuswriter.throttle.drift_limit import correction_allowed_at_s, note_correction
from gpuledger.events.payload import truncated
from gpuledger.events.settings import SettingNotInForce
from gpuledger.runtime.settings import OwnDeployment

HANDLER: Final = "scale"
FIELD: Final = "highAvailability"
INSTEAD: Final = "the number of pods that there is"

MODULE: Final = Key(Kind.MODULE, MODULE_CONFIG)

log = structlog.get_logger("gpuledger.statuswriter")


class Scaler(Periodic):
    """Scales the Deployments that the settings name; `touch` takes an object that has changed by it."""

    def __init__(self, context: PeriodicContext, touch: Callable[[Key], None]) -> None:
        super().__init__(context)
        self._touch = touch
        self._corrected = {one: ObjectState() for one in context.write.settings.deployments}
        self._problems: dict[OwnDeployment, str] = {}
        self._changed = asyncio.Event()

    def settings_changed(self) -> None:
        """Look at once: the setting may be another one. What it takes now is no fight with anybody."""
        for state in self._corrected.values():
            state.corrected_at_s = ()
        self._changed.set()

    async def run(self) -> None:
        """Scale for ever."""
        while True:
            self._changed.clear()
            if self._state.enabled and self._is_ever_set:
                for one in self._corrected:
                    await self._scale(one)
                self._show()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._context.settings.scale_check_s):
                    await self._changed.wait()

    @property
    def _is_ever_set(self) -> bool:
        setting = self._state.availability.latest
        return setting is not None and setting.last is not None

    async def _scale(self, one: OwnDeployment) -> None:
        """Scale a Deployment as it should be, or note why that cannot be; after an outage what was noted stays."""
        try:
            problem = await self._tried(one)
        except (ConflictError, TransientError) as error:
            log.info("scale.retried", deployment=one.name, reason=str(error))
            return
        except KubeError as error:
            HANDLER_ERRORS.labels(HANDLER).inc()
            problem = f"{one} cannot be scaled: {error}"
        self._problems[one] = problem

    async def _tried(self, one: OwnDeployment) -> str:
        async with self._breaker.request():
            found = await self._client.get(DEPLOYMENTS, one.name, one.namespace)
        present, number = self._decided(found)
        if number is None:
            return ""
        if self._is_fought_over(self._corrected[one]):
            return f"somebody keeps changing the number of pods of {one}, and gpuledger leaves it for now"
        async with self._breaker.request():
            await self._write(one, number, found["metadata"]["resourceVersion"])
        log.info("scaled", deployment=one.name, before=present, after=number)
        return ""

    @property
    def _client(self) -> KubeClient:
        return self._context.client

    def _decided(self, deployment: Document) -> tuple[int, int | None]:
        """How many pods there are, and how many there should be instead."""
        present = mapping(deployment, "spec").get("replicas") or 0
        annotations = mapping(deployment, "metadata", "annotations")
        given = given_replicas(annotations, ANNOTATION_REPLICAS)
        setting = self._state.availability.latest
        return present, scaled_to(setting, given=present if given is None else given, present=present)

    def _is_fought_over(self, state: ObjectState) -> bool:
        """Whether it was corrected often enough for now; otherwise this is one more correction."""
        now_s, per_hour_max = self._context.now(), self._context.settings.corrections_per_hour_max
        if correction_allowed_at_s(state, per_hour_max, now_s) > now_s:
            return True
        note_correction(state, per_hour_max, now_s)
        return False

    async def _write(self, one: OwnDeployment, number: int, version: str) -> None:
        """Write the number, unless the Deployment changed since it was read: people may just have stopped it."""
        patch = {"metadata": {"resourceVersion": version}, "spec": {"replicas": number}}
        await self._client.merge_patch(DEPLOYMENTS, one.name, patch, one.namespace, subresource="scale")

    def _show(self) -> None:
        """Show in the module's condition, and once as an Event, what keeps the setting from being in force."""
        check, now = self._state.module_check, self._context.clock()
        before, refused = check.shown, self._refused()
        if not check.refuse(refused, now):
            return
        if refused is not None:
            log.warning("scale.refused", reason=refused.problem)
        self._touch(MODULE)
        shown = check.shown
        if shown is not None and (note := news_of(before, shown)) is not None:
            is_warning, recorded_ns = bool(shown.in_vain), int(now.timestamp() * 1e9)
            self._announce(Occurrence(MODULE, EventReason.CONDITION_CHANGED, note, note, is_warning, now, recorded_ns))

    def _refused(self) -> SettingNotInForce | None:
        setting, problems = self._state.availability.latest, [one for one in self._problems.values() if one]
        if setting is None or setting.present is None or not problems:
            return None
        is_set = f"{FIELD} is {'true' if setting.present else 'false'}, but"
        return SettingNotInForce(field=FIELD, problem=truncated(f"{is_set} {'; '.join(problems)}"), in_force=INSTEAD)
