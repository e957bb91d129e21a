"""Another machine on the same kernel: a network namespace, joined by a cable whose packets can be made to vanish.

Nothing is closed and nobody is told: frames go to an address that no card has, as they do when the other machine lost
its power. Both kernels have to find out by themselves, which no proxy can show.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import pytest

from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.local.servers.privileges import Launch

NO_CARD = "02:00:00:00:00:01"
"""A hardware address that neither end of the cable has."""

SUBNETS = 1 << 14


class FarMachine(NamedTuple):
    """The other machine. `near` is this machine's address on the cable, `far` the other's."""

    name: str
    near: str
    far: str

    def command(self, *command: str) -> tuple[str, ...]:
        """A command as it runs on that machine."""
        return ("ip", "netns", "exec", self.name, *command)

    def url(self, url: str) -> str:
        """A URL of a server here, as it is called there."""
        parts = urlsplit(url)
        account, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{account}{at}{self.near}:{parts.port}"))

    def vanish(self) -> None:
        """No packet gets through any more, in either direction."""
        _ip("neigh", "replace", self.far, "lladdr", NO_CARD, "dev", f"{self.name}n", "nud", "permanent")
        _ip("-n", self.name, "neigh", "replace", self.near, "lladdr", NO_CARD, "dev", "eth0", "nud", "permanent")

    def come_back(self) -> None:
        """Packets get through again."""
        _ip("neigh", "del", self.far, "dev", f"{self.name}n")
        _ip("-n", self.name, "neigh", "del", self.near, "dev", "eth0")


@contextmanager
def far_machine() -> Iterator[FarMachine]:
    """A machine for the length of the block; skips the test where the kernel lets us make none."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip (iproute2)")
    first = 4 * (os.getpid() % SUBNETS)
    network = f"10.231.{first >> 8}.{{}}"
    machine = FarMachine(f"gl{os.getpid()}", network.format((first & 255) + 1), network.format((first & 255) + 2))
    try:
        _ip("netns", "add", machine.name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine permits no network namespaces: {error.stderr.strip()}")
    near = f"{machine.name}n"
    try:
        _ip("link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", machine.name)
        _ip("addr", "add", f"{machine.near}/30", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", machine.name, "addr", "add", f"{machine.far}/30", "dev", "eth0")
        _ip("-n", machine.name, "link", "set", "eth0", "up")
        _ip("-n", machine.name, "link", "set", "lo", "up")
        yield machine
    finally:
        subprocess.run(("ip", "link", "del", near), check=False, capture_output=True)
        _ip("netns", "del", machine.name)


class ReachablePostgres(PostgresServer):
    """A server that listens on another address of this machine as well."""

    address = ""

    def _prepare(self) -> Launch:
        launch = super()._prepare()
        with (self._data / "pg_hba.conf").open("a") as access:
            access.write(f"host all all {self.address}/30 scram-sha-256\n")
        return launch

    def _command(self, port: int) -> Sequence[str]:
        return (*super()._command(port), f"--listen_addresses=127.0.0.1,{self.address}")


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True)
