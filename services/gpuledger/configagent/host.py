"""The machine that an agent configures: where its files are, its systemd, and how it reboots.

Everything here is called in a thread and may block within its bounds. A simulated machine is a folder, a systemd that
answers from memory, and a reboot that changes the boot id.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from gpuledger.configagent.errors import HostError

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The same in every container of a machine, because no namespace has its own."""


class UnitStatus(NamedTuple):
    """A unit as systemd shows it, by the properties LoadState, ActiveState, UnitFileState and Type.

    `unit_file` is empty where there is no unit file; `kind` is empty for what is no service.
    """

    load: str = "loaded"
    active: str = "inactive"
    unit_file: str = ""
    kind: str = ""


class Systemd(Protocol):
    """The machine's systemd."""

    def observe(self, names: Collection[str]) -> Mapping[str, UnitStatus]:
        """The status of each unit.

        Raises:
            UnitError: systemd does not answer.
        """
        ...

    def run(self, verb: str, unit: str | None = None) -> None:
        """What `systemctl VERB UNIT` does; it has happened when this returns. The verb may have options.

        Raises:
            UnitError: it failed, or took too long.
        """
        ...


@dataclass(frozen=True, slots=True)
class Host:
    """The machine. `state_dir` is the agent's own folder on it, which outlives reboots.

    `reboot` asks for one and returns; it raises UnitError where that is refused. `boot_id` differs after each. Where
    `owned` is False the owners of files are neither set nor compared: whoever is not root cannot give files away.
    """

    root: Path
    state_dir: Path
    systemd: Systemd
    reboot: Callable[[], None]
    boot_id: Callable[[], str]
    owned: bool = True


def kernel_boot_id() -> str:
    """What identifies this boot of the machine.

    Raises:
        HostError: the kernel does not say.
    """
    try:
        return BOOT_ID.read_text().strip()
    except OSError as error:
        raise HostError(f"{BOOT_ID}: {error.strerror}. The agent needs the kernel's /proc.") from error
