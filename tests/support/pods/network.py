"""A network for pods: one bridge, an address for each pod, and a hosts file where Services are pods.

There is no proxy: a name leads straight to a pod, so that a Service's port must equal the pod's. Several networks may
be there at once, each with a subnet that it has claimed. What a killed process left goes when the next one claims it.
"""

import asyncio
import fcntl
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

PREFIX: Final = "10.213"
SUBNETS: Final = range(77, 97)
FIRST: Final = 10
LAST: Final = 250
DOMAIN: Final = "cluster.local"

Object = dict[str, Any]


class PodNetwork:
    """The bridge, and the namespaces of the pods that are attached; `hosts` is every pod's `/etc/hosts`."""

    def __init__(self, directory: Path) -> None:
        self.hosts = directory / "hosts"
        self._claim, number = _claimed()
        self._subnet = f"{PREFIX}.{number}"
        self.gateway = f"{self._subnet}.1"
        """The address of the machine, for pods."""
        self.bridge = f"gl{number}"
        self._numbers: Iterator[int] = count(FIRST)
        self._attached: dict[str, int] = {}

    async def open(self) -> None:
        """Make the bridge; the machine has the gateway's address on it."""
        self.write_hosts({})
        await self._remove_remains()
        await ip("link", "add", self.bridge, "type", "bridge")
        await ip("address", "add", f"{self.gateway}/24", "dev", self.bridge)
        await ip("link", "set", self.bridge, "up")

    async def _remove_remains(self) -> None:
        for name in os.listdir("/sys/class/net"):  # noqa: PTH208 - it never waits
            if name == self.bridge or name.startswith(f"{self.bridge}v"):
                await ip("link", "delete", name)
        for line in (await ip("netns", "list")).splitlines():
            space = line.split()[0]
            if not space.startswith(f"{self.bridge}-"):
                continue
            for process in (await ip("netns", "pids", space)).split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            await ip("netns", "delete", space)

    async def close(self) -> None:
        """Remove everything."""
        for name in list(self._attached):
            await self.detach(name)
        await ip("link", "delete", self.bridge)
        os.close(self._claim)

    def namespace(self, name: str) -> str:
        """The network namespace of a pod that is attached."""
        return f"{self.bridge}-{self._attached[name]}"

    async def attach(self, name: str) -> str:
        """Give a pod a network; returns its address."""
        number = next(self._numbers)
        assert number <= LAST, "more pods than this network has addresses"
        self._attached[name] = number
        space, outer, address = self.namespace(name), f"{self.bridge}v{number}", f"{self._subnet}.{number}"
        await ip("netns", "add", space)
        await ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
        await ip("link", "set", outer, "master", self.bridge, "up")
        await ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            await ip("-n", space, "link", "set", device, "up")
        return address

    async def detach(self, name: str) -> None:
        """Take a pod's network away; nothing where it has none."""
        if name in self._attached:
            space = self.namespace(name)
            del self._attached[name]
            await ip("netns", "delete", space)

    def write_hosts(self, names: dict[str, str]) -> None:
        """Have all pods find these names, in the file that they have mounted."""
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in sorted(names.items()))]
        text = "\n".join(lines) + "\n"
        if not self.hosts.exists() or self.hosts.read_text() != text:
            self.hosts.write_text(text)


@asynccontextmanager
async def pod_network(directory: Path) -> AsyncIterator[PodNetwork]:
    """A network for pods until the block ends."""
    network = PodNetwork(directory)
    await network.open()
    try:
        yield network
    finally:
        await network.close()


def service_names(services: list[Object], pods: list[Object]) -> dict[str, str]:
    """The address of each name by which pods find Services, and the pods of headless ones."""
    found: dict[str, str] = {}
    for service in services:
        metadata, spec = service["metadata"], service["spec"]
        if not spec.get("selector"):
            continue
        for pod in endpoints_of(service, pods):
            address = pod["status"]["podIP"]
            found |= dict.fromkeys(_names(metadata["name"], metadata["namespace"]), address)
            if pod["spec"].get("subdomain") == metadata["name"]:
                name = f"{pod['metadata']['name']}.{metadata['name']}"
                found |= dict.fromkeys(_names(name, metadata["namespace"]), address)
    return found


def endpoints_of(service: Object, pods: list[Object]) -> list[Object]:
    """The pods behind a Service, which are ready unless it publishes all."""
    spec, namespace = service["spec"], service["metadata"]["namespace"]
    return [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == namespace
        and pod.get("status", {}).get("podIP")
        and spec["selector"].items() <= (pod["metadata"].get("labels") or {}).items()
        and (is_ready(pod) or spec.get("publishNotReadyAddresses"))
    ]


def is_ready(pod: Object) -> bool:
    """Whether a pod's condition Ready holds, and it is not on its way out."""
    conditions = pod.get("status", {}).get("conditions", [])
    return not pod["metadata"].get("deletionTimestamp") and any(
        one["type"] == "Ready" and one["status"] == "True" for one in conditions
    )


def _names(name: str, namespace: str) -> list[str]:
    return [name, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{DOMAIN}"]


def _claimed() -> tuple[int, int]:
    """A descriptor that has a subnet until it is closed, and the subnet's number."""
    for number in SUBNETS:
        claim = os.open(Path(tempfile.gettempdir(), f"gpuledger-pods-{number}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(claim)
        else:
            return claim, number
    raise AssertionError("all subnets for pods are taken")


async def ip(*arguments: str) -> str:
    """What `ip` prints."""
    process = await asyncio.create_subprocess_exec(
        "ip", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, f"ip {' '.join(arguments)}: {output.decode()}"
    return output.decode()
