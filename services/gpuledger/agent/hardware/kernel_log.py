"""The errors (XIDs) in the kernel's log, where the driver writes them whether it reports them otherwise or not. Pure.

The log comes as text, as syslog(2) gives it: a line a message, `<facility and level>[time] message`, the newest last.
"""

import re
from typing import Final

from gpuledger.agent.hardware.api import Xid

_LINE: Final = re.compile(r"<(\d{1,3})>(?:\[ *\d+\.\d+\])?(?:\[ *[TC]\d+\])? ?(.*)")
"""The prefix has a time, and who wrote the message, only where the kernel is built or set to add them."""

_XID: Final = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?(?: [^)]*)?\): (\d{1,9})\b",
    re.IGNORECASE,
)
"""Older drivers leave `PCI:` out, and most the function, which is 0; some name the MIG instance behind the address."""

_LEVELS: Final = 8
"""Facilities begin behind so many levels; the first facility is the kernel's own, in which no process can write."""


def xid_in(message: str) -> Xid | None:
    """The XID in a message of the kernel's log; None where it holds none."""
    found = _XID.match(message)
    if found is None:
        return None
    domain, bus, device, function, number = found.groups()
    return Xid(f"{int(domain, 16):04x}:{bus}:{device}.{function or 0}".lower(), int(number))


class KernelLogTail:
    """Finds what was added to the kernel's log since it was read before."""

    def __init__(self) -> None:
        self._last: str | None = None

    def take(self, text: str) -> list[Xid]:
        """The XIDs that were added since the last call; none at the first one: they may be of any time.

        Where the last line of before is gone, the log was cleared or has been written over: all of it is new.
        """
        lines = text.rstrip("\n").split("\n")
        before, self._last = self._last, lines[-1]
        if before is None:
            return []
        begins = next((at + 1 for at in range(len(lines) - 1, -1, -1) if lines[at] == before), 0)
        xids = (xid_in(message) for message in map(_message_of_kernel, lines[begins:]))
        return [xid for xid in xids if xid is not None]


def _message_of_kernel(line: str) -> str:
    """The message in a line; empty where a process wrote it."""
    found = _LINE.match(line)
    return found[2] if found is not None and int(found[1]) < _LEVELS else ""
