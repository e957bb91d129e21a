"""What systemd would do on a simulated node: which units there are, and what becomes of one. Pure.

A unit is one of the image's own, or has a file among those of the host. One of the host's fails to start where its
`ExecStart` is a program that fails, or that the node does not have; a one-shot is over as soon as it has run.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from gpuledger.configagent.errors import UnitError
from gpuledger.configagent.host import UnitStatus

IMAGE_UNITS: Final = frozenset(
    {
        "auditd.service",
        "chrony.service",
        "chronyd.service",
        "cron.service",
        "irqbalance.service",
        "multipathd.service",
        "nvidia-fabricmanager.service",
        "nvidia-persistenced.service",
        "rsyslog.service",
        "sshd.service",
        "systemd-modules-load.service",
        "systemd-sysctl.service",
        "systemd-timesyncd.service",
        "systemd-udevd.service",
        "tuned.service",
    }
)
"""The units of the simulated nodes' image."""

_PROGRAM_FOLDERS: Final = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/lib/systemd/")
_FAILING: Final = frozenset({"/bin/false", "/usr/bin/false"})
_PREFIXES: Final = "@-:+!|"
"""What may stand before the program of an `ExecStart`."""

ACTIONS: Final = frozenset({"enable", "disable", "start", "stop", "restart", "reload", "mask", "unmask"})


ActiveState = Literal["active", "inactive", "failed"]


class UnitState(NamedTuple):
    """A unit as systemd has it."""

    enabled: bool = False
    active: ActiveState = "inactive"
    masked: bool = False


def status_of(unit: str, state: UnitState, file: str | None) -> UnitStatus:
    """The unit as `systemctl show` has it; `file` is its file on the host, if it has one."""
    if state.masked:
        return UnitStatus("masked", state.active, "masked")
    if not _exists(unit, file):
        return UnitStatus("not-found")
    kind = "" if not unit.endswith(".service") else next(_values(file or "", "Type"), "simple")
    return UnitStatus("loaded", state.active, "enabled" if state.enabled else "disabled", kind)


def after(action: str, unit: str, state: UnitState, file: str | None) -> UnitState:
    """The unit after one of `ACTIONS`, which succeeds or leaves it failed.

    Raises:
        UnitError: systemd refuses the action.
    """
    if action == "mask":
        return state._replace(masked=True)
    if action == "unmask":
        return state._replace(masked=False)
    if not _exists(unit, file):
        raise UnitError(f"Failed to {action} {unit}: Unit {unit} not found.")
    if state.masked and action not in ("stop", "disable"):
        raise UnitError(f"Failed to {action} {unit}: Unit {unit} is masked.")
    match action:
        case "enable" | "disable":
            return state._replace(enabled=action == "enable")
        case "stop":
            return state._replace(active="inactive")
        case "reload":
            if state.active != "active":
                raise UnitError(f"{unit} is not active, cannot reload.")
            return state
        case _:
            return state._replace(active=_started(file or ""))


def booted(unit: str, state: UnitState, file: str | None) -> UnitState:
    """The unit after a boot: enabled ones start."""
    stopped = state._replace(active="inactive")
    try:
        return after("start", unit, stopped, file) if state.enabled else stopped
    except UnitError:
        return stopped


def _exists(unit: str, file: str | None) -> bool:
    return file is not None or unit in IMAGE_UNITS


def _started(file: str) -> ActiveState:
    """What a unit with this file is once it has been started."""
    programs = [command.lstrip(_PREFIXES).split()[0] for command in _values(file, "ExecStart") if command]
    if not all(program.startswith(_PROGRAM_FOLDERS) and program not in _FAILING for program in programs):
        return "failed"
    stays = "oneshot" not in _values(file, "Type") or "yes" in _values(file, "RemainAfterExit")
    return "active" if stays else "inactive"


def _values(file: str, key: str) -> Iterator[str]:
    """The values that a unit's file has under a key."""
    lines = (line.strip().partition("=") for line in file.splitlines())
    return (value.strip() for found, _, value in lines if found.strip() == key)
