"""Socket files: which file it is, what the agent's own are called, and the removal of own ones that were left behind.

A kubelet that restarts wipes the folder of its plugins' sockets and makes its own anew, without telling anybody; all
that shows it is a socket file with another identity. The agent must remove no file that is not its own by name.
"""

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.agent.errors import SocketError

KUBELET_SOCKET: Final = "kubelet.sock"

PATH_BYTES_MAX: Final = 99
"""The system takes 107; the rest is room for whoever sees the folder under a longer path."""

READABLE_MAX: Final = 32
"""How much of a resource's name its socket's name begins with; the hash that follows tells resources apart."""

_OURS: Final = re.compile(r"gpuledger-[a-z0-9.-]*-[0-9a-f]{8}\.sock").fullmatch


class FileIdentity(NamedTuple):
    """Tells a file from a later one at the same path, even where the system reuses an inode."""

    device: int
    inode: int
    changed_ns: int


def identity_of(path: Path) -> FileIdentity | None:
    """The identity of the file at a path, or None.

    Raises:
        SocketError: the path cannot be read.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SocketError(f"{path} cannot be read: {error.strerror}. Is its folder mounted?") from error
    return FileIdentity(found.st_dev, found.st_ino, found.st_ctime_ns)


def socket_name(resource: str) -> str:
    """The file name of a resource's socket, always the same for a resource.

    The pool comes before the domain, which only says what kind of pool it is: what does not fit is cut at the end.
    """
    domain, _, pool = resource.lower().rpartition("/")
    readable = re.sub(r"[^a-z0-9.-]+", "-", f"{pool}-{domain}").strip("-.")[:READABLE_MAX].strip("-.")
    return f"gpuledger-{readable}-{sha256(resource.encode()).hexdigest()[:8]}.sock"


def socket_path(folder: Path, resource: str) -> Path:
    """The path of a resource's socket.

    Raises:
        SocketError: the path is longer than the system takes.
    """
    path = folder / socket_name(resource)
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise SocketError(
            f"{path} is longer than the {PATH_BYTES_MAX} bytes of a socket's path; give a shorter folder."
        )
    return path


def remove(path: Path) -> None:
    """Remove a socket of the agent's own, if it is there.

    Raises:
        SocketError: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise SocketError(f"{path} cannot be removed: {error.strerror}; remove it by hand.") from error


def remove_leftovers(folder: Path) -> list[str]:
    """Remove the sockets that an earlier agent left behind; returns their names.

    Raises:
        SocketError: the folder cannot be read, or a socket cannot be removed.
    """
    names = sorted(name for name in _names(folder) if _OURS(name))
    for name in names:
        remove(folder / name)
    return names


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SocketError(f"{folder} cannot be read: {error.strerror}. Is it mounted?") from error
