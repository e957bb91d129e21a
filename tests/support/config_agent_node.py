"""A node with its agent of machine configuration, for tests of the agent's loop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from gpuledger.api.machine_config import ANNOTATION_CURRENT, ANNOTATION_LAST_ERROR, ANNOTATION_STATE
from gpuledger.configagent.agent import AgentTimes, ConfigAgent
from gpuledger.domain.machineconfig.desired import DesiredConfig
from gpuledger.runtime.tasks import end
from support.config_agent import TIMES, FakeApi, FakeMachine, Reports, SteppingClock, config, file, unit
from support.waiting import eventually

FIRST: Final = config([file("/etc/a", "1")])
SECOND: Final = config([file("/etc/a", "2")], [unit("a.service", "restarted")])
REBOOTING: Final = config([file("/etc/a", "3")], reboot=True, strategy="IfRequired", min_interval_s=600)


class Place:
    """A node: its machine, its API, and what its agent reports."""

    def __init__(self, root: Path, *configs: DesiredConfig) -> None:
        self.machine = FakeMachine(root)
        self.api = FakeApi(*configs)
        self.reports = Reports()
        self.clock = SteppingClock()
        self.agent = self.new_agent()

    def new_agent(self, times: AgentTimes = TIMES) -> ConfigAgent:
        return ConfigAgent("w1", self.machine.host, self.api, self.reports, self.clock, times)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.agent = self.new_agent()
        task = asyncio.create_task(self.agent.run())
        try:
            yield
            assert not task.done(), task.exception()
        finally:
            await end([task])

    async def shows(self, state: str, current: str | None = None, **others: str) -> None:
        expected = {ANNOTATION_STATE: state} | ({ANNOTATION_CURRENT: current} if current else {})
        await self.until(lambda: expected.items() <= self.api.annotations.items())

    async def reports_reboot(self, one: DesiredConfig) -> None:
        await self.until(
            lambda: (self.reports.facts[-1].state, self.reports.facts[-1].revision) == ("rebooting", one.name)
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        async def holds() -> bool:
            return condition()

        await eventually(holds, interval_s=0.005)

    @property
    def error(self) -> str:
        return self.api.annotations.get(ANNOTATION_LAST_ERROR, "")
