"""The settings of the agent of machine configuration, read from its environment."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuledger.configagent.agent import AgentTimes
from gpuledger.configagent.host import Host, kernel_boot_id
from gpuledger.configagent.systemctl import Systemctl, rebooter
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.runtime.settings import DEFAULT_METRICS_LISTEN, METRICS_LISTEN, SettingsError

NODE_NAME: Final = "NODE_NAME"
HOST_ROOT: Final = "GPULEDGER_HOST_ROOT"
STATE_DIR: Final = "GPULEDGER_CONFIG_STATE_DIR"
FACTS_DIR: Final = "GPULEDGER_CONFIG_FACTS_DIR"
"""The node's agent has the same setting, and records what it finds there."""

SYSTEMCTL: Final = "GPULEDGER_SYSTEMCTL"
REBOOT: Final = "GPULEDGER_REBOOT_COMMAND"
CHECK_S: Final = "GPULEDGER_CONFIG_CHECK_S"
REBOOT_WITHIN_S: Final = "GPULEDGER_REBOOT_WITHIN_S"

DEFAULT_HOST_ROOT: Final = "/host"
DEFAULT_STATE: Final = "var/lib/gpuledger/config-agent"
DEFAULT_FACTS: Final = "reports"
DEFAULT_CHECK_S: Final = 300
DEFAULT_REBOOT_WITHIN_S: Final = 600
CHECK_RANGE_S: Final = (10, 86_400)
REBOOT_RANGE_S: Final = (60, 3600)


@dataclass(frozen=True, slots=True)
class ConfigAgentSettings:
    """All settings of an agent of machine configuration."""

    node: str
    root: Path
    state: Path
    facts: Path
    systemctl: tuple[str, ...]
    reboot: tuple[str, ...]
    check_s: int
    reboot_within_s: int
    metrics: str

    def host(self) -> Host:
        """The machine."""
        return Host(self.root, self.state, Systemctl(self.systemctl), rebooter(self.reboot), kernel_boot_id)

    def times(self) -> AgentTimes:
        """The bounds of the agent's waits."""
        return AgentTimes(check_s=self.check_s, reboot_within_s=self.reboot_within_s)


def read_config_agent_settings(environ: Mapping[str, str]) -> ConfigAgentSettings:
    """The settings in an environment.

    Raises:
        SettingsError: a setting is missing or invalid.
    """
    node = environ.get(NODE_NAME)
    if not node or len(node) > NAME_LENGTH_MAX or "/" in node:
        raise SettingsError(f"The node's name is missing or no name; give --node, or set {NODE_NAME}.")
    root = Path(environ.get(HOST_ROOT) or DEFAULT_HOST_ROOT).absolute()
    if not root.is_dir():
        raise SettingsError(f"{HOST_ROOT}={root} is no folder; mount the host's root there.")
    state = Path(environ.get(STATE_DIR) or root / DEFAULT_STATE).absolute()
    systemctl = _command(environ, SYSTEMCTL) or (
        ("systemctl",) if root == Path("/") else ("chroot", str(root), "systemctl")
    )
    return ConfigAgentSettings(
        node,
        root,
        state,
        Path(environ.get(FACTS_DIR) or state / DEFAULT_FACTS).absolute(),
        systemctl,
        _command(environ, REBOOT) or (*systemctl, "reboot"),
        _seconds(environ, CHECK_S, DEFAULT_CHECK_S, CHECK_RANGE_S),
        _seconds(environ, REBOOT_WITHIN_S, DEFAULT_REBOOT_WITHIN_S, REBOOT_RANGE_S),
        environ.get(METRICS_LISTEN) or DEFAULT_METRICS_LISTEN,
    )


def _command(environ: Mapping[str, str], variable: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(environ.get(variable, "")))
    except ValueError as error:
        raise SettingsError(f"{variable}={environ[variable]!r} is no command: {error}.") from error


def _seconds(environ: Mapping[str, str], variable: str, default: int, allowed: tuple[int, int]) -> int:
    text = environ.get(variable) or str(default)
    low, high = allowed
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise SettingsError(f"{variable}={text!r} has to be a whole number from {low} to {high}.")
    return int(text)
