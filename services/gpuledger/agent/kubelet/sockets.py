"""Sockets by their files: which one it is, what ours are called, and which of ours were left behind.

A kubelet that restarts wipes the folder of its plugins' sockets and makes its own anew, and tells nobody: a socket's
file that is another one than before is all there is to see of it. No file that is not ours by its name is ever removed.
"""

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.agent.errors import SocketError

KUBELET_SOCKET: Final = "kubelet.sock"

PATH_BYTES_MAX: Final = 99
"""The system takes 107; the rest is room for whoever sees the folder by a longer path."""

READABLE_MAX: Final = 32
"""How much of a resource's name is kept in its socket's; the hash after it tells resources apart."""

_OURS: Final = re.compile(r"gpuledger-[a-z0-9.-]*-[0-9a-f]{8}\.sock").fullmatch


class FileIdentity(NamedTuple):
    """Tells a file from another one at the same path, even where the system uses an inode again."""

    device: int
    inode: int
    changed_ns: int


def identity_of(path: Path) -> FileIdentity | None:
    """Which file is there, or None.

    Raises:
        SocketError: nobody can tell.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SocketError(f"{path} cannot be looked at: {error.strerror}. Is its folder mounted?") from error
    return FileIdentity(found.st_dev, found.st_ino, found.st_ctime_ns)


def socket_name(resource: str) -> str:
    """The file name of a resource's socket, the same whenever it is asked for."""
    readable = re.sub(r"[^a-z0-9.-]+", "-", resource.lower())[-READABLE_MAX:].strip("-.")
    return f"gpuledger-{readable}-{sha256(resource.encode()).hexdigest()[:8]}.sock"


def socket_path(folder: Path, resource: str) -> Path:
    """Where a resource's socket stands.

    Raises:
        SocketError: the system takes no socket at so long a path.
    """
    path = folder / socket_name(resource)
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise SocketError(
            f"{path} is longer than the {PATH_BYTES_MAX} bytes of a socket's path; give a shorter folder."
        )
    return path


def remove(path: Path) -> None:
    """Remove a socket of ours; one that is not there is none to remove.

    Raises:
        SocketError: it stays.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise SocketError(f"{path} cannot be removed: {error.strerror}; remove it by hand.") from error


def remove_leftovers(folder: Path) -> list[str]:
    """Remove the sockets that an agent before this one left behind; returns their names.

    Raises:
        SocketError: the folder cannot be read, or one of them stays.
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
