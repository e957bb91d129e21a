"""Brings the agent's reports to its Node and to the ledger, each until it is there, whatever is away meanwhile.

The Node's annotations are level-triggered: only the newest report is written, and again where somebody else changed it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from gpuledger.api.machine_config import ANNOTATION_CURRENT, ANNOTATION_REBOOT_PENDING
from gpuledger.configagent.api import NodeApi
from gpuledger.configagent.errors import ApiError
from gpuledger.configagent.reports import AgentReport, annotations_of, fact_of, observed_of
from gpuledger.configagent.steps import Outcome
from gpuledger.events.machine_config import NodeConfigReported
from gpuledger.runtime.backoff import Backoff, Retries, system_jitter

PATCH_BACKOFF: Final = Backoff(first_s=1.0, max_s=60.0)

ReportFact = Callable[[NodeConfigReported], Awaitable[None]]
"""Leaves a fact for the ledger."""

log = structlog.get_logger("gpuledger.configagent")


class Reporter:
    """Reports of one agent."""

    def __init__(
        self, api: NodeApi, facts: ReportFact, *, backoff: Backoff = PATCH_BACKOFF, pause_s: float = 1.0
    ) -> None:
        self._api = api
        self._facts = facts
        self._retries = Retries(backoff, system_jitter)
        self._pause_s = pause_s
        self._observed: dict[str, str | None] | None = None
        self._written: dict[str, str | None] | None = None
        self._due = asyncio.Event()
        self._delivered = asyncio.Event()
        self.last: AgentReport | None = None
        self.trouble: str | None = None

    @property
    def observed_current(self) -> str | None:
        """The revision that the Node shows as the current one."""
        return (self._observed or {}).get(ANNOTATION_CURRENT)

    @property
    def observed_reboot_pending(self) -> bool:
        """Whether the Node shows that a reboot is due."""
        return (self._observed or {}).get(ANNOTATION_REBOOT_PENDING) == "true"

    async def report(self, report: AgentReport, boot: str, outcomes: tuple[Outcome, ...] = ()) -> None:
        """Report, unless that is what was reported last."""
        if report == self.last:
            return
        self.last = report
        log.info("the state of the node's configuration", state=report.state.value, revision=report.revision)
        await self._facts(fact_of(report, outcomes, boot))
        self._compare()

    def observe(self, annotations: Mapping[str, str]) -> None:
        """The Node has these annotations."""
        self._observed = self._written = observed_of(annotations)
        self._compare()

    async def delivered(self, timeout_s: float) -> bool:
        """Whether the Node has the newest report, or gets it in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._delivered.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            await self._due.wait()
            assert self.last is not None  # else nothing is due
            annotations = annotations_of(self.last)
            try:
                await self._api.patch(annotations)
            except ApiError as error:
                self.trouble = str(error)
                await asyncio.sleep(self._retries.pause_s())
                continue
            self._retries.reset()
            self.trouble = None
            self._written = annotations
            self._compare()
            # Somebody who changes each of these writes would have the agent write without end.
            await asyncio.sleep(self._pause_s)

    def _compare(self) -> None:
        if self.last is None:
            return
        is_due = annotations_of(self.last) != self._written
        (self._due.set if is_due else self._due.clear)()
        (self._delivered.clear if is_due else self._delivered.set)()
