"""A container of a pod as it runs: its attempts, and what the API server shows of them."""

import asyncio
import secrets
from pathlib import Path
from typing import Any, Final

import psutil

from gpuledger.runtime.clock import system_clock
from support.pods.sandbox import Container

MESSAGE_PATH: Final = "/dev/termination-log"
MESSAGE_BYTES_MAX: Final = 4096
"""What a kubelet keeps of what a container leaves in its file."""

ID_BYTES: Final = 32
RUNTIME: Final = "containerd"

Object = dict[str, Any]


class Running:
    """A container of a pod, as it runs; every attempt has an id of its own, as a runtime gives it."""

    def __init__(self, spec: Object) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.process: asyncio.subprocess.Process | None = None
        self.container: Container | None = None
        self.restarts = 0
        self.code: int | None = None
        self.ready = False
        self.id = ""
        self._started_at = ""
        self._terminated: Object = {}
        self._before: Object = {}

    @property
    def lives(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.returncode is None

    @property
    def message_path(self) -> str:
        """Where the container leaves its termination message."""
        return str(self.spec.get("terminationMessagePath", MESSAGE_PATH))

    def begin(self) -> None:
        """Another attempt: what became of the one before is its last state."""
        self.restarts += bool(self._terminated)
        self.id, self.code = secrets.token_hex(ID_BYTES), None
        self._before, self._terminated = self._terminated, {}

    def started(self, process: asyncio.subprocess.Process, container: Container) -> None:
        """The attempt's process runs."""
        self.process, self.container, self._started_at = process, container, now()

    def ended(self, code: int, message: Path) -> None:
        """The attempt is over, with what it left in its file."""
        self.code = code
        left = message.read_bytes()[:MESSAGE_BYTES_MAX].decode(errors="replace")
        self._terminated = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": self._started_at,
            "finishedAt": now(),
            "containerID": f"{RUNTIME}://{self.id}",
        } | ({"message": left} if left else {})

    def command_pid(self) -> int:
        """The number of its own process, below those that made its namespaces."""
        assert self.process is not None, "it was started"
        children = psutil.Process(self.process.pid).children()
        assert children, "it starts or ends just now"
        return children[0].pid

    def status(self, waiting: str) -> Object:
        """As the API server shows it; `waiting` is why its first attempt has not begun."""
        state: Object = {"waiting": {"reason": waiting}}
        if self._terminated:
            state = {"terminated": self._terminated}
        elif self.lives:
            state = {"running": {"startedAt": self._started_at}}
        shown = {"name": self.name, "image": self.spec["image"], "imageID": self.spec["image"]}
        return {
            **shown,
            "ready": self.ready,
            "restartCount": self.restarts,
            "containerID": f"{RUNTIME}://{self.id}" if self.id else "",
            "state": state,
            "lastState": {"terminated": self._before} if self._before else {},
        }


def now() -> str:
    """The time as Kubernetes writes it."""
    return system_clock().strftime("%Y-%m-%dT%H:%M:%SZ")
