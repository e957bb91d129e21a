"""The simulation logs that it cannot follow a kind once, not at every retry."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from gpuledger.api.kinds import GPU_DEVICES
from gpuledger.edge.kube.client import ClientSettings, ObjectList
from gpuledger.edge.kube.errors import KubeError, NotFoundError, UnavailableError
from gpuledger.tools.simulation.service import KindWatch

ABSENT, AWAY = NotFoundError("There is no such kind.", 404), UnavailableError("Nobody answers.")
INFO, WARNING = ("info", "simulation.kind-absent"), ("warning", "simulation.watch-interrupted")


class Answers:
    """A server that answers each list and watch in turn; None is a success."""

    def __init__(self, *answers: KubeError | None) -> None:
        self.left = list(answers)
        self.settings = ClientSettings()

    async def collect(self, *_args: Any) -> Any:
        answer = self.left.pop(0)
        if answer is not None:
            raise answer
        return ObjectList([], "1")

    async def sleep(self, _pause_s: float) -> None:
        if not self.left:
            raise asyncio.CancelledError

    async def watch(self, *_args: Any, **_more: Any) -> AsyncIterator[Any]:
        await self.collect()
        yield []


async def logged(*answers: KubeError | None) -> list[tuple[str, str]]:
    server = Answers(*answers)
    watch: KindWatch[Any] = KindWatch(server, GPU_DEVICES, dict, sleep=server.sleep)  # type: ignore[arg-type]
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await watch.run()
    return [(one["log_level"], one["event"]) for one in logs]


async def test_a_missing_kind_is_logged_once_and_calmly() -> None:
    assert await logged(ABSENT, ABSENT, ABSENT) == [INFO]


async def test_every_row_of_equal_failures_is_logged_once() -> None:
    assert await logged(AWAY, AWAY, ABSENT, ABSENT, AWAY) == [WARNING, INFO, WARNING]
    assert await logged(ABSENT, None, ABSENT) == [INFO, INFO]
