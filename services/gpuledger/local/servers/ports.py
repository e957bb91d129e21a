"""Chooses loopback ports for the embedded servers.

The ports are below the range from which operating systems take the local ports of outgoing connections. A client that
keeps reconnecting to a killed server on a port inside that range would sooner or later connect to itself and so keep
the server from getting its port back.
"""

import itertools
import socket
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

HOST = "127.0.0.1"
FIRST_PORT = 20_000
PORTS = 10_000
CANDIDATES = 64
_POLL_INTERVAL_S = 0.02


def candidate_ports(directory: Path) -> Iterator[int]:
    """Free ports, at most `CANDIDATES`, in an order that depends only on the directory."""
    start = zlib.crc32(str(directory).encode())
    numbers = (FIRST_PORT + (start + step) % PORTS for step in range(PORTS))
    return itertools.islice(filter(is_free, numbers), CANDIDATES)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now; connections that linger after a close do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def wait_until_free(port: int, timeout_s: float) -> bool:
    """Whether the port is free, or becomes free within the time."""
    deadline = time.monotonic() + timeout_s
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL_S)
    return True
