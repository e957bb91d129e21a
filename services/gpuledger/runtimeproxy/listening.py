"""The proxy's unix socket: only root may reach it, and only one process serves on it.

The library removes whatever socket has the path when it binds, and again when it closes. So a lock beside the socket
is held from before the one to after the other, and a socket on which somebody else serves is left alone.
"""

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gpuledger.runtimeproxy.errors import SocketError, SocketInUseError

CONNECT_TIMEOUT_S: Final = 2.0
PRIVATE_UMASK: Final = 0o177
"""Whoever reaches the socket of a container runtime is root on the node."""


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds the path of a socket for this process for the length of the block, free of a socket that nobody serves.

    Raises:
        SocketInUseError: another process serves there, a proxy or not.
        SocketError: something that is no socket has the path, or its folder cannot be written.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SocketError(f"Cannot write {lock}: {error.strerror}. Create the folder, or run as root.") from error
    try:
        _lock(file, path)
        _remove_stale(path)
        yield
    finally:
        os.close(file)


@contextmanager
def private() -> Iterator[None]:
    """What is created within the block is for this user alone."""
    before = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise SocketInUseError(f"Another proxy serves on {path}; stop it, or choose another --listen.") from error


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketError(f"{path} is no socket, so it stays; remove it, or choose another --listen.")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(CONNECT_TIMEOUT_S)
        try:
            connection.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise SocketInUseError(f"{path} cannot be examined ({error}); choose another --listen.") from error
    raise SocketInUseError(f"Another process serves on {path}; choose another --listen than the runtime's own socket.")
