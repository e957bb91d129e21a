"""Keeps the ConfigMaps of gangs, and has records of what becomes of each gang.

What a ConfigMap is to have follows from the pods in the ledger, and its name from the gang: whoever begins again,
killed at whatever step, looks before writing. A gang about whose pods nothing was recorded for long is left as it is,
because history never acts; what is left of a gang without pods is always cleared away.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import structlog

from gpuledger.api.preflight import gang_config_map
from gpuledger.edge.kube.circuit_breaker import is_refusal
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.preflight.coordinator import metrics
from gpuledger.edge.preflight.coordinator.config_maps import ForeignConfigMapError, GangConfigMaps
from gpuledger.edge.preflight.coordinator.decide import (
    GangConfig,
    config_of,
    config_of_row,
    data_of,
    is_history,
    is_too_large,
    size_of_row,
    source_of,
    write_at,
)
from gpuledger.edge.preflight.coordinator.progress import GangProgress, Look
from gpuledger.edge.preflight.coordinator.sizes import CoordinatorTools, GangSizes, SizeLook
from gpuledger.edge.preflight.coordinator.state import GangPod, GangRow, Gangs
from gpuledger.events.payload import Payload, truncated
from gpuledger.events.preflight import PEERS_MAX, GangConfigured, GangDissolved, GangNotConfigured, GangTimedOut

FOREIGN: Final = "ForeignConfigMap"
REFUSED: Final = "Refused"
TOO_LARGE: Final = "TooManyPods"
UNSIZED: Final = "SizeUnknown"

log = structlog.get_logger("gpuledger.preflight")


class GangCause(NamedTuple):
    """The fact that an outcome about a gang follows from; `node` is what outcomes are about, the gang."""

    node: str
    intent: str
    time: datetime
    correlation: str


class GangCoordinator:
    """Works on gangs, each by one worker at a time."""

    def __init__(self, gangs: Gangs, queue: WorkQueue[str], tools: CoordinatorTools) -> None:
        self._gangs = gangs
        self._queue = queue
        self._tools = tools
        self._config_maps = GangConfigMaps(tools.client, tools.breaker, tools.settings.owner)
        self._sizes = GangSizes(tools, queue.now_s)
        self._progress = GangProgress()
        self._failures: dict[str, int] = {}
        self._states: dict[str, str] = {}

    @property
    def failing(self) -> int:
        """How many gangs are tried again later."""
        return len(self._failures)

    def enqueue(self, gangs: Iterable[str]) -> None:
        """Work on these at once."""
        for one in gangs:
            self._queue.hasten(one)

    async def run(self) -> None:
        """Work for ever."""
        while True:
            gang = await self._queue.take()
            try:
                await self._work_on(gang)
            finally:
                self._queue.done(gang)

    async def _work_on(self, gang: str) -> None:
        row = self._gangs.get(gang)
        if row is None:
            self._forget(gang)
            return
        try:
            await self._advance(self._progress.seen(row), self._gangs.pods(gang))
        except KubeError as error:
            await self._retry_later(row, error)
        else:
            self._failures.pop(gang, None)

    async def _advance(self, row: GangRow, pods: Sequence[GangPod]) -> None:
        """Do what is next for a gang, and queue it for what comes then."""
        if not pods:
            await self._dissolve(row)
            return
        if self._is_history(row):
            return
        look = await self._sizes.find(row, pods)
        config = config_of(row, pods, look.size or size_of_row(row))
        if config is None:
            return
        self._count(row.gang, "complete" if config.is_complete else "forming")
        if is_too_large(config):
            message = f"It has more than {PEERS_MAX} pods, or names that are too long. Divide it into smaller gangs."
            await self._not_configured(row, TOO_LARGE, message)
            return
        try:
            row = await self._keep(row, config, pods)
        except ForeignConfigMapError as error:
            await self._not_configured(row, FOREIGN, str(error))
            self._look_later(row)
        else:
            await self._note_size(row, look)
        await self._time_out(row, config)
        self._queue_again(row, config, look)

    async def _keep(self, row: GangRow, config: GangConfig, pods: Sequence[GangPod]) -> GangRow:
        """Write the ConfigMap where it is due, and else look whether it is as it was written."""
        written = config_of_row(row)
        if written != config:
            due = write_at(row, config, self._tools.settings.pacing)
            if due is not None and due <= self._tools.clock():
                return await self._write(row, config, pods)
        look = self._progress.looks.get(row.gang)
        if written is None or look is None or look.serial != row.serial:
            self._look_later(row)
        elif look.next_at_s <= self._queue.now_s():
            if not await self._config_maps.has(row, data_of(row.id, written)):
                return await self._write(row, config, pods)
            self._look_later(row)
        return row

    async def _write(self, row: GangRow, config: GangConfig, pods: Sequence[GangPod]) -> GangRow:
        written = await self._config_maps.write(row, data_of(row.id, config))
        now = self._tools.clock()
        waited_s = max((now - row.began_at).total_seconds(), 0.0)
        data = GangConfigured(
            config_map=gang_config_map(row.id),
            source=source_of(pods) or "-",
            expected=config.expected,
            passed=config.passed,
            peers=config.peers,
            complete=config.is_complete,
            created=written.is_new or row.configured_at is None,
            waited_s=waited_s if config.is_complete else None,
        )
        await self._record(row, data, written.version)
        row = self._progress.configured(row, config, now)
        self._look_later(row)
        return row

    async def _time_out(self, row: GangRow, config: GangConfig) -> None:
        """Record once that the gang is not complete in time; where no pod has an address, no check waits yet."""
        if row.has_timed_out or config.is_complete or not config.peers:
            return
        waited_s = (self._tools.clock() - row.began_at).total_seconds()
        if waited_s >= self._tools.settings.gang_timeout_s():
            data = GangTimedOut(expected=config.expected, found=len(config.peers), waited_s=waited_s)
            await self._record(row, data, row.round)
            self._progress.timed_out(row)

    async def _note_size(self, row: GangRow, look: SizeLook) -> None:
        if look.is_noteworthy and not row.expected:
            await self._not_configured(row, UNSIZED, look.problem)

    async def _not_configured(self, row: GangRow, reason: str, message: str) -> None:
        """Record once why a gang is not configured."""
        if self._progress.has_problem(row, reason):
            return
        data = GangNotConfigured(reason=reason, message=truncated(message))
        await self._record(row, data, f"{reason}/{row.serial}")
        self._progress.not_configured(row, reason)
        log.warning("preflight.gang-not-configured", gang=row.gang, reason=reason, message=message)

    async def _dissolve(self, row: GangRow) -> None:
        """Delete the ConfigMap of a gang without pods, and record that it is over."""
        if self._progress.is_dissolved(row):
            return
        may_be_there = row.configured_at is not None or not self._is_history(row)
        removed = may_be_there and await self._config_maps.delete(row)
        await self._record(row, GangDissolved(removed=removed))
        self._progress.dissolved(row)
        self._count(row.gang, None)

    def _is_history(self, row: GangRow) -> bool:
        """Whether its pods may be others by now; nothing is recorded about pods that wait, however long they may."""
        max_age = max(self._tools.settings.max_age, timedelta(seconds=2 * self._tools.settings.gang_timeout_s()))
        return is_history(row, self._tools.clock(), max_age)

    async def _record(self, row: GangRow, data: Payload, part: str = "") -> None:
        cause = GangCause(row.gang, row.fact, row.fact_at, row.correlation)
        await self._tools.recorder.record(cause, data, part)
        metrics.count(data)

    def _look_later(self, row: GangRow) -> None:
        """Look at the ConfigMap after a pause that grows with each look since it was written."""
        before = self._progress.looks.get(row.gang)
        times = before.times + 1 if before is not None and before.serial == row.serial else 1
        pause_s = self._tools.settings.rechecks.pause_s(times, self._tools.jitter())
        self._progress.looks[row.gang] = Look(row.serial, times, self._queue.now_s() + pause_s)

    def _queue_again(self, row: GangRow, config: GangConfig, size: SizeLook) -> None:
        """Queue the gang for whatever is next: a write, a look, or its time-out."""
        now, now_s, settings = self._tools.clock(), self._queue.now_s(), self._tools.settings
        at_s = [self._progress.looks[row.gang].next_at_s]
        if size.next_at_s is not None and not config.is_complete:
            at_s.append(size.next_at_s)
        times = [] if row.has_timed_out else [row.began_at + timedelta(seconds=settings.gang_timeout_s())]
        if config_of_row(row) != config and (due := write_at(row, config, settings.pacing)) is not None:
            times.append(due)
        at_s += [now_s + (one - now).total_seconds() for one in times if one > now]
        self._queue.add(row.gang, max(min(at_s), now_s))

    async def _retry_later(self, row: GangRow, error: KubeError) -> None:
        metrics.RETRIES.labels(type(error).__name__).inc()
        failures = self._failures[row.gang] = self._failures.get(row.gang, 0) + 1
        pause_s = self._tools.pause_s(error, failures)
        log.warning("preflight.gang-failed", gang=row.gang, reason=str(error), retry_s=round(pause_s, 3))
        if is_refusal(error) and failures >= self._tools.settings.refusals_max:
            await self._not_configured(self._progress.seen(row), REFUSED, str(error))
        self._queue.add(row.gang, self._queue.now_s() + pause_s)

    def _forget(self, gang: str) -> None:
        self._progress.forget(gang)
        self._sizes.forget(gang)
        self._failures.pop(gang, None)
        self._count(gang, None)

    def _count(self, gang: str, state: str | None) -> None:
        before = self._states.pop(gang, None)
        if state is not None:
            self._states[gang] = state
        if before != state:
            for one, change in ((before, -1), (state, 1)):
                if one is not None:
                    metrics.GANGS.labels(one).inc(change)
