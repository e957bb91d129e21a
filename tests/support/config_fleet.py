"""Machine configurations of a running `gpuledger up --fleet`: pools of labelled nodes, and its events."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from gpuledger.api.kinds import MACHINE_CONFIG_POOLS, MACHINE_CONFIGS, NODES
from gpuledger.api.machine_config import ANNOTATION_CURRENT, ANNOTATION_STATE, LABEL_POOL
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.machine_config import NodeConfigChanged
from gpuledger.ledger.jetstream import connect_ledger
from support.kube_fleet import create
from support.ledgers import everything
from support.up import Up
from support.waiting import eventually

MEMBER: Final = "example.com/config-pool"
"""The label by which a node is of a pool."""

FILE: Final = "etc/gpu.conf"
NOT_IN_FLIGHT: Final = frozenset({"Idle"})
FLIGHT_S: Final = 120.0
"""The longest that a pool takes to come somewhere."""

INTERVAL_S: Final = 0.05


class ConfigFleet:
    """The pools and configurations of a test, and the nodes of the fleet."""

    def __init__(self, up: Up, client: KubeClient) -> None:
        self.client = client
        self.hosts: Path = up.data_dir / "hosts"
        self._up = up

    async def nodes(self) -> list[Object]:
        """The Nodes, by name."""
        found = (await self.client.list(NODES)).items
        return sorted(found, key=lambda node: str(node["metadata"]["name"]))

    async def ready(self, count: int) -> list[str]:
        """The names of the fleet's nodes, once so many are there."""

        async def are_there() -> bool:
            return len(await self.nodes()) == count

        await eventually(are_there)
        return [node["metadata"]["name"] for node in await self.nodes()]

    async def put_pool(self, name: str, nodes: Iterable[str], **spec: Any) -> None:
        """A pool of these nodes, which renders at once."""
        for node in nodes:
            await self.join(name, node)
        rollout = {"debounceSeconds": 0, **spec.pop("rollout", {})}
        selectors = {
            "nodeSelector": {"matchLabels": {MEMBER: name}},
            "machineConfigSelector": {"matchLabels": {LABEL_POOL: name}},
        }
        pool = {"metadata": {"name": name}, "spec": {**selectors, "rollout": rollout, **spec}}
        await create(self.client, MACHINE_CONFIG_POOLS, pool)

    async def join(self, pool: str, node: str) -> None:
        """A node becomes one of a pool's."""
        await self.client.merge_patch(NODES, node, {"metadata": {"labels": {MEMBER: pool}}})

    async def put_config(
        self, pool: str, content: str, *, path: str = f"/{FILE}", reboot: bool = False, units: Iterable[Object] = ()
    ) -> None:
        """The one MachineConfig of a pool: a file, units perhaps, and a reboot where it is required."""
        await self.put_files(pool, [{"path": path, "content": content}], reboot=reboot, units=units)

    async def put_files(
        self, pool: str, files: list[Object], *, reboot: bool = False, units: Iterable[Object] = ()
    ) -> None:
        """The one MachineConfig of a pool, with several files."""
        spec = {"files": files, "systemd": {"units": [*units]}, "reboot": {"required": reboot}}
        metadata = {"name": f"{pool}-config", "labels": {LABEL_POOL: pool}}
        await self.client.apply(MACHINE_CONFIGS, {"metadata": metadata, "spec": spec}, force=True, field_manager="ada")

    async def pool(self, name: str) -> Object:
        """A pool as it is."""
        return await self.client.get(MACHINE_CONFIG_POOLS, name)

    async def patch_pool(self, name: str, **spec: Any) -> None:
        """Change a pool's spec."""
        await self.client.merge_patch(MACHINE_CONFIG_POOLS, name, {"spec": spec})

    async def pool_becomes(self, name: str, holds: Callable[[Object], object]) -> Object:
        """A pool, once something holds of it."""
        found: Object = {}
        try:
            async with asyncio.timeout(FLIGHT_S):
                while not (found and holds(found)):
                    await asyncio.sleep(INTERVAL_S)
                    found = await self.pool(name)
        except TimeoutError:
            nodes = {node["metadata"]["name"]: annotations(node) for node in await self.nodes()}
            raise AssertionError(f"the pool has not come there: {found.get('status')}, {nodes}") from None
        return found

    async def rolled_out(self, name: str, nodes: Iterable[str], content: str, path: str = FILE) -> Object:
        """A pool whose nodes all have a content of the file, and are done."""
        members = [*nodes]

        def is_ready(pool: Object) -> bool:
            files = [self.hosts / node / path for node in members]
            have = all(file.exists() and file.read_text() == content for file in files)
            return have and condition(pool, "Ready") == "True"

        return await self.pool_becomes(name, is_ready)

    async def events(self) -> list[Decoded]:
        """All events of the ledger."""
        async with connect_ledger(self._up.running.endpoints.nats_url, name="test") as ledger:
            return [decode(message.data) for message in await everything(ledger)]

    async def most_in_flight(self, pool: str) -> int:
        """The most nodes of a pool that were between their request of maintenance and its end, at any position."""
        in_flight: set[str] = set()
        most = 0
        for event in await self.events():
            if isinstance(event.data, NodeConfigChanged) and event.data.pool == pool:
                is_idle = event.data.phase in NOT_IN_FLIGHT and not event.data.cordoned
                (in_flight.discard if is_idle else in_flight.add)(event.subject)
                most = max(most, len(in_flight))
        return most

    async def phases(self, pool: str) -> list[tuple[str, str]]:
        """The nodes and the phases of their updates, in order."""
        changes = [(one.subject, one.data) for one in await self.events() if isinstance(one.data, NodeConfigChanged)]
        return [(node, data.phase) for node, data in changes if data.pool == pool]


def condition(pool: Object, kind: str) -> str | None:
    """The status of a condition."""
    found = {one["type"]: one["status"] for one in pool.get("status", {}).get("conditions") or ()}
    return found.get(kind)


def message_of(pool: Object, kind: str) -> str:
    """The message of a condition."""
    found = {one["type"]: one.get("message", "") for one in pool.get("status", {}).get("conditions") or ()}
    return str(found.get(kind, ""))


def annotations(node: Object) -> dict[str, str]:
    """A node's annotations."""
    return node["metadata"].get("annotations") or {}


def has_done(node: Object, revision: str) -> bool:
    """Whether a node has a revision, and its agent is done."""
    found = annotations(node)
    return (found.get(ANNOTATION_CURRENT), found.get(ANNOTATION_STATE)) == (revision, "done")
