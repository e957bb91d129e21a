"""The agent of one node: brings its host to the configuration that the Node names, reboots it where due, and reports.

It is level-triggered: each turn looks at what the Node asks for and at what is on the disk, and takes what is missing.
Whatever fails is reported and tried again after a pause; nothing that fails ends it.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeVar

import structlog

from gpuledger.api.machine_config import ANNOTATION_DESIRED, ANNOTATION_DESIRED_SET_AT, AgentState
from gpuledger.configagent.api import NodeApi
from gpuledger.configagent.apply import apply, drift, drift_message
from gpuledger.configagent.errors import ApiError, ConfigAgentError, RebootError, RefusedConfigError
from gpuledger.configagent.host import Host
from gpuledger.configagent.memory_file import MemoryFile
from gpuledger.configagent.reboot import RebootDecision, RebootStep, next_step, standing_request
from gpuledger.configagent.reporter import PATCH_BACKOFF, Reporter, ReportFact
from gpuledger.configagent.reports import AgentReport
from gpuledger.configagent.state import AgentMemory, RebootRequest
from gpuledger.configagent.steps import Outcome
from gpuledger.domain.machineconfig.desired import DesiredConfig
from gpuledger.domain.machineconfig.rendered_object import RenderedObjectError, read_object
from gpuledger.runtime.backoff import Backoff, Retries, system_jitter
from gpuledger.runtime.clock import Clock
from gpuledger.runtime.tasks import run_until_one_fails

T = TypeVar("T")

log = structlog.get_logger("gpuledger.configagent")


@dataclass(frozen=True, slots=True)
class AgentTimes:
    """The bounds of the agent's waits, in seconds.

    `check_s` is between two looks for files that somebody changed. `reboot_within_s` bounds how long a machine may
    take to go down, `report_within_s` how long a reboot waits at a time for its report to be written.
    `relist_s` and `patch_pause_s` are at least between two watches, and two writes, of the Node.
    """

    check_s: float = 300.0
    reboot_within_s: float = 600.0
    report_within_s: float = 60.0
    relist_s: float = 1.0
    patch_pause_s: float = 1.0
    work: Backoff = field(default_factory=lambda: Backoff(first_s=5.0, max_s=300.0))
    watch: Backoff = field(default_factory=lambda: Backoff(first_s=1.0, max_s=60.0))
    patch: Backoff = PATCH_BACKOFF


DEFAULT_TIMES: Final = AgentTimes()


@dataclass(slots=True)
class AgentCounts:
    """What the agent has done since it started, for its metrics."""

    applies: int = 0
    failures: int = 0
    reboots: int = 0
    drifted_files: int = 0
    last_apply: datetime | None = None


class ConfigAgent:
    """The agent of one node; `run` goes on until it is cancelled."""

    def __init__(
        self,
        node: str,
        host: Host,
        api: NodeApi,
        reports: ReportFact,
        clock: Clock,
        times: AgentTimes = DEFAULT_TIMES,
    ) -> None:
        self._node = node
        self._host = host
        self._api = api
        self._clock = clock
        self._times = times
        self._reporter = Reporter(api, reports, backoff=times.patch, pause_s=times.patch_pause_s)
        self._memory_file = MemoryFile(host.state_dir)
        self._memory: AgentMemory | None = None
        self._is_stale = True
        self._boot = ""
        self._desired: str | None = None
        self._desired_set_at: str | None = None
        self._is_heard = False
        self._is_stopping = False
        self._changed = asyncio.Event()
        self._retries = Retries(times.work, system_jitter)
        self._outcomes: tuple[Outcome, ...] = ()
        self._watch_trouble: str | None = None
        self.counts = AgentCounts()

    async def run(self) -> None:
        """Follow the Node, work and report."""
        await run_until_one_fails((self._watch(), self._work(), self._reporter.run()))

    @property
    def report(self) -> AgentReport | None:
        """What was reported last."""
        return self._reporter.last

    @property
    def desired(self) -> str | None:
        """The revision that the Node is to have, as far as the agent has heard."""
        return self._desired

    @property
    def troubles(self) -> dict[str, str]:
        """What the agent cannot do at the moment, by part."""
        found = {"watch": self._watch_trouble, "report": self._reporter.trouble}
        return {part: trouble for part, trouble in found.items() if trouble}

    async def _watch(self) -> None:
        retries = Retries(self._times.watch, system_jitter)
        while True:
            pause_s = self._times.relist_s
            try:
                async with aclosing(self._api.node()) as stream:
                    async for annotations in stream:
                        retries.reset()
                        self._watch_trouble = None
                        self._hear(annotations)
            except ApiError as error:
                self._watch_trouble = str(error)
                pause_s = retries.pause_s()
            await asyncio.sleep(pause_s)

    def _hear(self, annotations: Mapping[str, str]) -> None:
        self._reporter.observe(annotations)
        desired, set_at = annotations.get(ANNOTATION_DESIRED) or None, annotations.get(ANNOTATION_DESIRED_SET_AT)
        if not self._is_heard or (desired, set_at) != (self._desired, self._desired_set_at):
            self._desired, self._desired_set_at = desired, set_at
            self._is_heard = True
            self._retries.reset()
            self._changed.set()

    async def _work(self) -> None:
        await self._changed.wait()
        while True:
            self._changed.clear()
            wait_s = await self._turn()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    async def _turn(self) -> float:
        """Do what is due; returns how long to wait for anything new, in seconds."""
        desired = self._desired
        try:
            await self._remember()
            wait_s = await self._reconcile(desired)
        except ConfigAgentError as error:
            if desired == self._desired:
                self.counts.failures += 1
                await self._report(AgentState.ERROR, desired, str(error))
            return self._retries.pause_s()
        self._retries.reset()
        return wait_s

    async def _reconcile(self, desired: str | None) -> float:
        if desired is None:
            await self._report(AgentState.IDLE, None)
            return self._times.check_s
        await self._keep(self._of_host.by_clock(self._clock()))
        if standing := standing_request(self._of_host, self._boot, self._clock(), self._times.reboot_within_s):
            return await self._reboot(desired, standing)
        if self._of_host.applied is None or self._of_host.applied.name != desired:
            await self._apply(desired)
        if self._of_host.current != desired or self._of_host.under_way:
            await self._refresh_policy(desired)
            decision = next_step(self._of_host, self._boot, self._clock(), self._times.reboot_within_s)
            if decision.step not in (RebootStep.NOT_NEEDED, RebootStep.LEFT_TO_PEOPLE):
                return await self._reboot(desired, decision)
            await self._keep(replace(self._of_host, current=desired, under_way=False))
        return await self._check(desired)

    async def _apply(self, desired: str) -> None:
        self._outcomes = ()
        config = await self._config(desired)
        if not self._is_retried(desired):
            await self._report(AgentState.APPLYING, desired)
        memory = self._of_host
        self._is_stale = True
        applied = await self._in_thread(
            lambda: apply(self._host, config, memory, go_on=lambda: self._desired == desired and not self._is_stopping)
        )
        self._memory, self._outcomes, self._is_stale = applied.memory, applied.outcomes, False
        if applied.error is not None:
            raise RefusedConfigError(applied.error)
        self.counts.applies += 1
        self.counts.last_apply = self._clock()

    def _is_retried(self, desired: str) -> bool:
        """Whether the last report has an error with the same configuration, which stands until it works."""
        last = self._reporter.last
        return last is not None and last.state is AgentState.ERROR and last.revision == desired

    async def _config(self, name: str) -> DesiredConfig:
        try:
            config = read_object(await self._api.rendered(name))
        except RenderedObjectError as error:
            raise RefusedConfigError(str(error)) from error
        if config.name != name:
            raise RefusedConfigError(f"The API server gave {config.name} where {name} was asked for.")
        return config

    async def _refresh_policy(self, desired: str) -> None:
        """Take over the pool's policy of reboots as it is now, if the server answers."""
        applied = self._of_host.applied
        if applied is None or self._of_host.reboot_due != self._boot:
            return
        with suppress(ApiError):
            config = await self._config(desired)
            applied = applied._replace(
                reboot_strategy=config.reboot_strategy, reboot_min_interval_s=config.reboot_min_interval_s
            )
            await self._keep(replace(self._of_host, applied=applied))

    async def _reboot(self, desired: str, decision: RebootDecision) -> float:
        if decision.step is RebootStep.OVERDUE:
            await self._keep(replace(self._of_host, requested=None))
            raise RebootError(
                f"The machine was asked to reboot and still runs after {self._times.reboot_within_s:g} s. It is asked "
                f"again; `systemctl list-jobs` on the host says what it waits for."
            )
        if decision.step is RebootStep.FORGOTTEN:
            raise RebootError(
                f"{self._host.state_dir} was lost while a reboot was due, and the next one may lose it as well, so the "
                f"agent does not reboot the machine by itself. Keep that folder on a disk, and reboot by hand."
            )
        await self._report(AgentState.REBOOTING, desired)
        if decision.step is not RebootStep.REBOOT:
            return decision.wait_s
        if not await self._reporter.delivered(self._times.report_within_s):
            return 0.0
        if not await self._is_desired_still(desired):
            return self._times.watch.first_s
        before = self._of_host
        await self._keep(replace(before, requested=RebootRequest(self._clock(), self._boot)))
        try:
            await self._in_thread(self._host.reboot)
        except ConfigAgentError:
            await self._keep(before)
            raise
        self.counts.reboots += 1
        return 0.0

    async def _is_desired_still(self, desired: str) -> bool:
        """Whether the Node itself says so: a watch that broke off may have missed that the node was given back."""
        with suppress(ApiError):
            async with aclosing(self._api.node()) as stream:
                self._hear(await anext(stream))
            return self._desired == desired
        return False

    async def _check(self, desired: str) -> float:
        """Report that the configuration is there, or what somebody has changed of it."""
        memory = self._of_host
        found = await self._in_thread(lambda: drift(self._host, memory))
        self.counts.drifted_files = len(found)
        if found:
            await self._report(AgentState.ERROR, desired, drift_message(found))
        else:
            await self._report(AgentState.DONE, desired)
        return self._times.check_s

    async def _remember(self) -> None:
        """Read what is on the host, at first and after work that did not end well, and which boot this is."""
        if self._is_stale:
            self._boot = await self._in_thread(self._host.boot_id)
            memory = await self._in_thread(self._memory_file.load)
            if memory == AgentMemory() and self._reporter.observed_reboot_pending:
                memory = replace(memory, forgotten=self._boot)
                await self._in_thread(lambda: self._memory_file.save(memory))
            self._memory, self._is_stale = memory.booted(self._boot), False

    @property
    def _of_host(self) -> AgentMemory:
        return self._memory or AgentMemory()

    async def _keep(self, memory: AgentMemory) -> None:
        if memory != self._memory:
            await self._in_thread(lambda: self._memory_file.save(memory))
            self._memory = memory

    async def _report(self, state: AgentState, revision: str | None, error: str = "") -> None:
        memory = self._of_host
        is_pending = memory.reboot_due is not None and memory.reboot_due == self._boot
        current = self._reporter.observed_current if self._memory is None else memory.current
        is_pending = is_pending and memory.applied is not None
        report = AgentReport(state, revision, current, error, is_pending, self._desired_set_at)
        await self._reporter.report(report, self._boot, self._outcomes)
        if state in (AgentState.DONE, AgentState.IDLE):
            self._outcomes = ()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """The result of work that blocks. It has ended when this does, also where this is cancelled."""
        working = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            self._is_stopping = True
            while not working.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([working])
            raise
