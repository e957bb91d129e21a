"""The simulated nodes' hosts: each a folder with what would be on the machine's disk, and the boot of its kernel."""

from pathlib import Path
from typing import Final

from gpuledger.events.ids import derived_id

BOOT_ID: Final = "proc/sys/kernel/random/boot_id"
REBOOT_REQUEST: Final = "run/systemd/reboot-requested"
UNIT_FOLDERS: Final = ("etc/systemd/system", "usr/lib/systemd/system")
AGENT: Final = "var/lib/gpuledger/machine-config"
HOST_MODE: Final = 0o755


class MachineFolder:
    """The host of a node; its folder appears with the first use."""

    def __init__(self, folder: Path, node: str) -> None:
        self.root = folder / node
        self.node = node

    @property
    def agent_folder(self) -> Path:
        """Where the node's agent of machine configuration keeps its own files."""
        return self.root / AGENT

    @property
    def boot_id(self) -> str:
        """The identity of its kernel's boot; the first one is the node's name."""
        try:
            return (self.root / BOOT_ID).read_text().strip()
        except FileNotFoundError:
            return self.node

    def prepare(self) -> None:
        """Make the folder, with the boot of its kernel."""
        self._write_boot(self.boot_id)

    def boot(self) -> str:
        """Boot the kernel again, as it may have been requested; returns the boot's identity."""
        boot_id = derived_id(self.boot_id, "boot", self.node)
        self._write_boot(boot_id)
        (self.root / REBOOT_REQUEST).unlink(missing_ok=True)
        return boot_id

    @property
    def has_reboot_request(self) -> bool:
        """Whether a reboot was requested, and has not begun."""
        return (self.root / REBOOT_REQUEST).exists()

    def request_reboot(self) -> None:
        """Request a reboot."""
        path = self.root / REBOOT_REQUEST
        path.parent.mkdir(mode=HOST_MODE, parents=True, exist_ok=True)
        path.touch()

    def unit_file(self, unit: str) -> str | None:
        """The text of a unit's file, None: the host has none."""
        for folder in UNIT_FOLDERS:
            try:
                return (self.root / folder / unit).read_text()
            except (FileNotFoundError, NotADirectoryError):
                continue
        return None

    def _write_boot(self, boot_id: str) -> None:
        path = self.root / BOOT_ID
        path.parent.mkdir(mode=HOST_MODE, parents=True, exist_ok=True)
        path.write_text(f"{boot_id}\n")
