"""Troubles outside the agent in its health, and a state folder that cannot have a control socket."""

from pathlib import Path

import pytest

from gpuledger.agent.control import control_socket
from gpuledger.agent.part import Recorder
from gpuledger.agent.supervisor import Supervisor


class Troubled:
    """A part that says what is wrong around it."""

    stuck_after_s = 60.0
    alive_at: float | None = None

    def __init__(self, name: str, trouble: str | None) -> None:
        self.name = name
        self.trouble = trouble

    async def run(self, record: Recorder) -> None:
        raise AssertionError("it is never run")


class Outbox:
    @property
    def record(self) -> Recorder:
        raise AssertionError("nothing is told")

    async def run(self, connect: object) -> None:
        raise AssertionError("it is never run")

    async def drained(self) -> None:
        raise AssertionError("it is never run")

    def describe(self) -> dict[str, object]:
        return {}


def test_troubles_of_parts_are_reported_and_are_no_illness() -> None:
    health = Supervisor("w1", [Troubled("driver", "it hangs"), Troubled("kubelet", None)], Outbox()).health()
    assert health.ok
    assert health.document["troubles"] == {"driver": "it hangs"}


async def test_a_folder_that_can_have_no_socket_ends_no_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    async with control_socket(folder, str):
        assert "faults cannot be injected" in capsys.readouterr().out
