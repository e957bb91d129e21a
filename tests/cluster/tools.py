"""kubectl and helm, as an administrator calls them. Every command and every wait has a time-out and a clear error."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any, Final

COMMAND_S: Final = 60.0
POLL_S: Final = 0.5

Object = dict[str, Any]


class StepError(Exception):
    """A step failed; the message says what was expected and what there is."""


class Tools:
    """Commands against the cluster of one kubeconfig."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self.namespace = namespace
        self._environ = {**os.environ, "KUBECONFIG": kubeconfig}

    def run(self, *command: str, given: str | None = None, timeout_s: float = COMMAND_S) -> str:
        """The output of a command.

        Raises:
            StepError: it cannot be run, fails, or takes too long.
        """
        try:
            ended = subprocess.run(
                command,
                input=given,
                env=self._environ,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise StepError(f"{command[0]} is not on the PATH; install it and repeat") from error
        except subprocess.TimeoutExpired as error:
            raise StepError(f"`{' '.join(command)}` did not end in {timeout_s:.0f} s") from error
        if ended.returncode != 0:
            raise StepError(f"`{' '.join(command)}` ended with {ended.returncode}:\n{ended.stderr or ended.stdout}")
        return ended.stdout

    def kubectl(self, *arguments: str, given: str | None = None, timeout_s: float = COMMAND_S) -> str:
        """The output of a kubectl command."""
        return self.run("kubectl", *arguments, given=given, timeout_s=timeout_s)

    def here(self, *arguments: str, timeout_s: float = COMMAND_S) -> str:
        """The output of a kubectl command in the release's namespace."""
        return self.kubectl("--namespace", self.namespace, *arguments, timeout_s=timeout_s)

    def helm(self, *arguments: str, timeout_s: float) -> str:
        """The output of a helm command in the release's namespace; helm gives up a little before."""
        return self.run("helm", "--namespace", self.namespace, *arguments, timeout_s=timeout_s)

    def apply(self, *objects: Object) -> None:
        """Apply objects."""
        self.kubectl("apply", "--filename", "-", given="\n".join(map(json.dumps, objects)))

    def items(self, *what: str) -> list[Object]:
        """The objects that `kubectl get` lists."""
        found: list[Object] = json.loads(self.kubectl("get", *what, "--output", "json"))["items"]
        return found

    def one(self, *what: str) -> Object:
        """The object that `kubectl get` shows."""
        found: Object = json.loads(self.kubectl("get", *what, "--output", "json"))
        return found


def wait(what: str, holds: Callable[[], str], timeout_s: float) -> None:
    """Return when `holds` finds nothing missing, which it says in words.

    Raises:
        StepError: something is still missing after the time.
    """
    deadline = time.monotonic() + timeout_s
    while missing := holds():
        if time.monotonic() > deadline:
            raise StepError(f"{what}: not within {timeout_s:.0f} s; {missing}")
        time.sleep(POLL_S)
