"""How the agent's process ends: what it still has to do is not cut short, and nothing of it goes on behind."""

import asyncio
import os
import signal

import pytest

from gpuledger.agent import process
from gpuledger.agent.outbox.outbox import Connect
from gpuledger.agent.settings import AgentSettings, read_agent_settings
from gpuledger.agent.supervisor import Agent
from gpuledger.runtime import tasks


async def test_an_orderly_end_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def work(_settings: AgentSettings) -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(50):
                await asyncio.sleep(0.001)
            ended.append("orderly")

    monkeypatch.setattr(tasks, "CANCEL_AGAIN_S", 0.001)
    monkeypatch.setattr(process, "_work", work)
    await process._until_stopped(read_agent_settings({"NODE_NAME": "w1", "NATS_URL": "nats://a"}))
    assert ended == ["orderly"]


async def test_an_end_that_is_interrupted_leaves_nothing_running() -> None:
    running: list[str] = []

    class Outbox:
        async def tell(self, facts: object) -> None:
            raise NotImplementedError

        async def run(self, connect: Connect) -> None:
            running.append("recording")
            try:
                await asyncio.Event().wait()
            finally:
                running.remove("recording")

        async def drained(self) -> None:
            running.append("draining")
            await asyncio.Event().wait()

        def describe(self) -> dict[str, object]:
            return {}

    task = asyncio.create_task(Agent("w1", (), Outbox()).run(lambda: None))  # type: ignore[arg-type, return-value]
    while "recording" not in running:  # noqa: ASYNC110 - it is over within some turns of the loop
        await asyncio.sleep(0)
    task.cancel()
    while "draining" not in running:  # noqa: ASYNC110 - it is over within some turns of the loop
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "recording" not in running
