"""The host's systemd by its own `systemctl`, which speaks the version of the protocol that the host's systemd does.

From a container it is run in the host's root (`chroot /host systemctl`), where it finds the socket of systemd. Nothing
that it prints is parsed but the properties that it is asked for.
"""

import os
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from gpuledger.configagent.errors import UnitError
from gpuledger.configagent.host import UnitStatus

OBSERVE_TIMEOUT_S: Final = 30.0
RUN_TIMEOUT_S: Final = 120.0
"""systemd ends the start of a unit itself after 90 s, unless the unit says otherwise."""

MESSAGE_CHARS_MAX: Final = 500
OPTIONS: Final = ("--no-pager", "--no-ask-password")
ENVIRONMENT: Final = {"SYSTEMD_IGNORE_CHROOT": "1", "LC_ALL": "C.UTF-8"}
"""Within a chroot systemctl skips most verbs and still succeeds, unless it takes that root for the machine's."""

PROPERTIES: Final = ("Id", "LoadState", "ActiveState", "UnitFileState", "Type")
SHELL_NOT_EXECUTABLE, SHELL_NOT_FOUND = 126, 127
"""How `chroot` and `nsenter` end where the host has no systemctl."""

_MEANINGS: Final[Mapping[int, str]] = {
    4: "it may not do that, or there is no such unit",
    5: "there is no such unit",
    6: "the unit is not configured",
    SHELL_NOT_EXECUTABLE: "systemctl cannot be run in the host's root",
    SHELL_NOT_FOUND: "the host has no systemctl",
}
"""Exit codes as systemctl(1) has them, after those of LSB."""


class Systemctl:
    """A `gpuledger.configagent.host.Systemd` that runs a command, such as `("chroot", "/host", "systemctl")`."""

    def __init__(self, command: Sequence[str], *, timeout_s: float = RUN_TIMEOUT_S) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s

    def observe(self, names: Collection[str]) -> dict[str, UnitStatus]:
        """The status of each unit; raises UnitError."""
        if not names:
            return {}
        asked = sorted(names)
        shown = self._run(("show", f"--property={','.join(PROPERTIES)}", "--", *asked), OBSERVE_TIMEOUT_S)
        blocks = [*_blocks(shown)]
        if len(blocks) != len(asked):
            raise UnitError(f"systemctl shows {len(blocks)} units where {len(asked)} were asked for; see its version.")
        return {name: _status(block) for name, block in zip(asked, blocks, strict=True)}

    def run(self, verb: str, unit: str | None = None) -> None:
        """Run a verb; raises UnitError."""
        self._run((*verb.split(), *(() if unit is None else ("--", unit))), self._timeout_s)

    def _run(self, arguments: Sequence[str], timeout_s: float) -> str:
        what = f"systemctl {' '.join(one for one in arguments if one != '--')}"
        return _output((*self._command, *OPTIONS, *arguments), what, timeout_s)


def rebooter(command: Sequence[str], *, timeout_s: float = RUN_TIMEOUT_S) -> Callable[[], None]:
    """A function that asks for a reboot by a command; it raises UnitError where that fails."""

    def reboot() -> None:
        _output(command, " ".join(command), timeout_s, may_be_killed=True)

    return reboot


def _output(command: Sequence[str], what: str, timeout_s: float, *, may_be_killed: bool = False) -> str:
    """What a command prints; a machine that goes down may kill it, which is no failure of a reboot."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={**os.environ, **ENVIRONMENT},
        )
    except subprocess.TimeoutExpired as error:
        raise UnitError(
            f"{what} has not finished within {timeout_s:g} s; `journalctl -b` of the host says what it waits for."
        ) from error
    except OSError as error:
        raise UnitError(f"{what} cannot be run: {error.strerror}: {command[0]}.") from error
    if done.returncode > 0 or (done.returncode < 0 and not may_be_killed):
        raise UnitError(_complaint(what, done.returncode, done.stderr))
    return done.stdout


def _complaint(what: str, code: int, errors: str) -> str:
    reason = " ".join(errors.split())[:MESSAGE_CHARS_MAX] or _MEANINGS.get(code, "it says nothing")
    meaning = f" ({_MEANINGS[code]})" if code in _MEANINGS and reason != _MEANINGS[code] else ""
    return f"{what} failed with exit code {code}{meaning}: {reason}"


def _blocks(shown: str) -> Iterator[dict[str, str]]:
    """The properties of each unit, which an empty line parts."""
    for block in shown.strip().split("\n\n"):
        yield dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _status(block: Mapping[str, str]) -> UnitStatus:
    return UnitStatus(
        block.get("LoadState", ""), block.get("ActiveState", ""), block.get("UnitFileState", ""), block.get("Type", "")
    )
