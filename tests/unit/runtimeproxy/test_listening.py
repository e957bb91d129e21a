"""Whose socket the proxy takes, and whose it leaves alone."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuledger.runtimeproxy.errors import SocketError, SocketInUseError
from gpuledger.runtimeproxy.listening import exclusive, private


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gpuledger-cri-") as name:
        yield Path(name) / "run" / "proxy.sock"


def bound(path: Path) -> socket.socket:
    path.parent.mkdir(exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    return server


def test_a_socket_that_nobody_serves_goes(path: Path) -> None:
    bound(path).close()
    with exclusive(path):
        assert not path.exists()


def test_a_socket_that_somebody_serves_stays(path: Path) -> None:
    with bound(path) as server:
        server.listen()
        with pytest.raises(SocketInUseError, match="Another process serves"), exclusive(path):
            pass
        assert path.exists()


def test_what_is_no_socket_stays(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("a file of somebody")
    with pytest.raises(SocketError, match="no socket"), exclusive(path):
        pass
    assert path.read_text() == "a file of somebody"


def test_one_proxy_at_a_time_has_a_path(path: Path) -> None:
    with exclusive(path), pytest.raises(SocketInUseError, match="Another proxy"), exclusive(path):
        pass
    with exclusive(path):
        pass


def test_a_folder_that_cannot_be_is_an_error(path: Path) -> None:
    path.parent.write_text("")
    with pytest.raises(SocketError, match="Cannot write"), exclusive(path):
        pass


def test_what_is_private_is_for_its_owner_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        with private():
            bound(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)
