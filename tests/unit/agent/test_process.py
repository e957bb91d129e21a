"""The end of the agent's process: orderly, complete, and with nothing left running."""

import asyncio

import pytest

from gpuledger.agent.outbox.outbox import Connect
from gpuledger.agent.supervisor import Supervisor


async def test_an_end_that_is_interrupted_leaves_nothing_running() -> None:
    running: list[str] = []

    class Outbox:
        async def record(self, facts: object) -> None:
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

    task = asyncio.create_task(Supervisor("w1", (), Outbox()).run(lambda: None))  # type: ignore[arg-type, return-value]
    while "recording" not in running:  # noqa: ASYNC110 - it is over within some turns of the loop
        await asyncio.sleep(0)
    task.cancel()
    while "draining" not in running:  # noqa: ASYNC110 - it is over within some turns of the loop
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "recording" not in running
