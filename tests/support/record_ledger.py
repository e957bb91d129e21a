"""Records a ledger and its database for `tests/migration`: `PYTHONPATH=tests python -m support.record_ledger`.

Imported histories, a simulated fleet and agents that this script plays produce every event type in two minutes. Record
with the last build before a change of schema or events; nothing here may overwrite a recording.
"""

import asyncio
import gzip
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

import orjson
import yaml

from gpuledger.api.kinds import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    GPU_DEVICES,
    GPU_POOLS,
    MODULE_CONFIG,
    MODULE_CONFIGS,
    NAMESPACES,
    NODE_FEATURES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from gpuledger.api.labels import (
    ANNOTATION_ASSIGNMENT,
    ANNOTATION_CLUSTER_ASSIGNMENT,
    LABEL_ENABLED,
    LABEL_IGNORE,
    LABEL_PRODUCT,
)
from gpuledger.db.revision import HEAD_REVISION
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.events.allocation import AllocatedDevices, AllocationEnded, AllocationObserved
from gpuledger.events.catalogue import registry
from gpuledger.events.device import (
    Card,
    DeviceErrorsObserved,
    DeviceFailed,
    DeviceHealthChanged,
    DevicePoolRefused,
    DeviceWithdrawn,
)
from gpuledger.events.envelope import Event
from gpuledger.events.node import NodeAgentStarted, NodeClockJumped, NodeDevicesObserved, NodeEventsDropped
from gpuledger.events.payload import Payload
from gpuledger.events.position import Offset
from gpuledger.events.registry import parse_type
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.ledger.errors import PublishError
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.local.servers.embedded import embedded_servers
from gpuledger.projection.runner import Runner
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.importers.sample import write_titan_sample
from support.events import outgoing
from support.examples import KINDS, apply, manifests
from support.kube_fleet import label_like_nfd
from support.recordings import ARCHIVE, DATABASE, FOLDER, STORE, Recording, dump_database, pack_store
from support.runners import Failing, unfit
from support.servers import short_directory
from support.up import Up, gpuledger, running_up
from support.waiting import WAIT_MAX_S, eventually

OBJECTS: Final = Path(__file__).with_suffix(".yaml")
CLAIM_KINDS: Final = {
    one.kind: one for one in (RESOURCE_SLICES, DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, NAMESPACES)
}
FLEET: Final = ("--fleet", "nodes=4,gpus=2,profile=mixed", "--speed", "60")
FLEET_DEVICES: Final = 8

SPARE: Final = "spare-01"
"""A node whose agent this script plays, with facts that no simulated agent reports; it is deleted at the end."""

SPARE_CARD: Final = "GPU-5a7e0001-0000-4000-8000-000000000001"
TITAN_DEVICES: Final = 12


def record(folder: Path) -> None:
    """Write a new recording into the folder."""
    folder.mkdir(parents=True)
    with short_directory() as directory:
        data = directory / "data"
        import_histories(directory, data)
        with running_up(data, *FLEET) as up:
            asyncio.run(live(up))
        for name in ("devices", "pools"):
            _run(data, "replay", name)  # which keeps the tables from before beside the live ones
        dump = asyncio.run(close(data))
        (folder / DATABASE).write_bytes(gzip.compress(dump, mtime=0))
        pack_store(data / "nats", folder / STORE)
        _run(data, "log", "export", str(folder / ARCHIVE))
        report(Recording(folder), dump)


def import_histories(directory: Path, data: Path) -> None:
    """Import a few lines in each importer's format."""
    titan, nodes, pods, lines = (directory / name for name in ("titan.csv", "nodes.csv", "pods.csv", "events.jsonl"))
    with titan.open("w", newline="") as file:
        write_titan_sample(file, seed=1, devices=TITAN_DEVICES)
    _run(data, "import", "titan", str(titan))
    _table(nodes, "sn,cpu_milli,memory_mib,gpu,model", "openb-1,64000,262144,2,V100M16", "openb-2,96000,524288,1,T4")
    _table(
        pods,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
        "openb-pod-1,6000,12288,1,1000,,LS,Running,0,12537496,0",
        "openb-pod-2,6000,12288,1,460,V100M16,BE,Succeeded,427061,445061,427100",
        "openb-pod-3,8000,16384,2,1000,,LS,Pending,9427061,12537496,",
    )
    _run(data, "import", "openb", str(nodes), str(pods))
    gone = {"type": "io.gpuledger.node.decommissioned.v1", "subject": "openb-2", "data": {}}
    stray = {"type": "io.gpuledger.device.removed.v1", "subject": "nobody", "data": {"slot": "openb-2/0"}}
    facts = (one | {"time": "2024-01-01T00:00:00Z"} for one in (gone, stray))
    lines.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in facts))
    _run(data, "import", "jsonl", str(lines))


async def live(up: Up) -> None:
    """Drive everything that needs running services."""
    async with (
        connect_ledger(up.running.endpoints.nats_url, name="recorder") as ledger,
        open_client(up.data_dir / "kubeconfig") as client,
    ):
        gap = asyncio.create_task(lose_and_find(ledger))
        await apply(client, "moduleconfig", "namespaces", "cluster-pools", "pools", "quota")
        for one in yaml.safe_load_all(OBJECTS.read_text()):
            await client.create(CLAIM_KINDS[one["kind"]], one)
        await share_devices(client)
        await use_pools(client, ledger)
        await come_and_go(client, ledger)
        await leave_pools(client, ledger)
        await go_wrong(client, ledger)
        await gap
        _run(up.data_dir, "log", "skip", str(await break_a_service(ledger)), "--reason", "recorded", "--yes")
        await recorded(ledger, "source.position-skipped")


async def share_devices(client: KubeClient) -> None:
    """Allocate a device to each of two claims, as a scheduler does."""
    for claim, device in (("held", "gpu-0"), ("over", "gpu-1")):
        result = {"request": "gpus", "driver": "gpu.example.com", "pool": "shelf", "device": device}
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
        await client.merge_patch(RESOURCE_CLAIMS, claim, status, "default", subresource="status")


async def use_pools(client: KubeClient, ledger: Ledger) -> None:
    """Assign devices to every pool, and wait for their set-up."""

    async def are_ready() -> bool:
        states = [one.get("status", {}).get("state") for one in (await client.list(GPU_DEVICES)).items]
        return states == ["Ready"] * FLEET_DEVICES

    await eventually(are_ready)
    found = await products(client)
    h200, a100 = (sorted(name for name, product in found.items() if product == one) for one in ("h200", "a100"))
    await mark(client, h200[0], annotations={ANNOTATION_CLUSTER_ASSIGNMENT: "cluster-a"})
    await mark(client, a100[0], annotations={ANNOTATION_CLUSTER_ASSIGNMENT: "cluster-a"})
    await mark(client, h200[-1], annotations={ANNOTATION_ASSIGNMENT: "local-x"})
    await mark(client, a100[-1], annotations={ANNOTATION_ASSIGNMENT: "a100-mig-2g20gb"})
    await recorded(ledger, "device.assignment-changed", "node.devices-wanted", "device.pool-applied", "pool.changed")


async def products(client: KubeClient) -> dict[str, str]:
    """The product of every GPUDevice that has a label for it."""
    items = (await client.list(GPU_DEVICES)).items
    labels = {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in items}
    return {name: found[LABEL_PRODUCT] for name, found in labels.items() if LABEL_PRODUCT in found}


async def mark(client: KubeClient, device: str, **metadata: dict[str, str]) -> None:
    """Put labels and annotations on a device as a person does, in place of those put on it before."""
    await client.apply(GPU_DEVICES, {"metadata": {"name": device, **metadata}}, field_manager="person", force=True)


async def come_and_go(client: KubeClient, ledger: Ledger) -> None:
    """Add the spare node, report facts as its agent, and delete it together with part of the other objects."""
    await label_like_nfd(client, SPARE)

    async def is_there() -> bool:
        return any(one.get("status", {}).get("nodeName") == SPARE for one in (await client.list(GPU_DEVICES)).items)

    await eventually(is_there)
    agent = Agent(ledger, SPARE)
    card = Card(
        uuid=SPARE_CARD,
        serial="1650520012345",
        product="NVIDIA H200",
        memory_mib=144_384,
        pci_address="0000:17:00.0",
        pci_vendor="10de",
        pci_device="2335",
        pci_class="0302",
    )
    await agent.report(
        (SPARE, NodeAgentStarted(version="1", hardware="nvml", clean=True, durable=True)),
        (SPARE, NodeDevicesObserved(cards=(card,), driver_version="570.1", cuda_version="12.8")),
    )
    await recorded(ledger, "device.identified")
    await agent.report(*spare_facts())
    impatient = {"spec": {"settings": {"bootstrap": {"validationTimeout": "1s"}}}}
    await client.merge_patch(MODULE_CONFIGS, MODULE_CONFIG, impatient)
    await recorded(ledger, "node.bootstrap-waited")
    await change_and_delete(client)
    await recorded(ledger, "device.withdrawn", "node.bootstrap-withdrawn", "node.features-gone", "node.unlabelled")
    await recorded(ledger, "claim.released", "slice.withdrawn", "device-class.removed", "taint-rule.lifted")
    await recorded(ledger, "namespace.gone", "node.gone", "node.inventory-withdrawn", "device.detached")


def spare_facts() -> list[tuple[str, Payload]]:
    """The facts that no simulated agent reports."""
    begun = system_clock() - timedelta(minutes=1)
    whole = AllocatedDevices(resource="cluster.gpu.deckhouse.io/cluster-a", devices=(SPARE_CARD,))
    shared = AllocatedDevices(resource="gpu.deckhouse.io/shared", devices=(f"{SPARE_CARD}::0",))
    one, two = (
        AllocationObserved(node=SPARE, namespace="gpu-team-a", pod=pod, container="c", resources=(units,))
        for pod, units in (("one", whole), ("two", shared))
    )
    errors = DeviceErrorsObserved(kind="XID 31", cause="application", count=2, first_at=begun, message="MMU fault")
    return [
        (f"{SPARE}/gpu-team-a/one/c", one),
        (f"{SPARE}/gpu-team-a/two/c", two),
        (f"{SPARE}/gpu-team-a/one/c", AllocationEnded()),
        (SPARE_CARD, errors),
        (SPARE_CARD, DeviceFailed(kind="XID 79", slot=f"{SPARE}/0000:17:00.0", message="fell off the bus")),
        (SPARE_CARD, DeviceHealthChanged(healthy=False, kind="XID 79", message="fell off the bus")),
        (SPARE_CARD, DeviceHealthChanged(healthy=True)),
        (SPARE, NodeClockJumped(seconds=-2.5)),
        (SPARE, NodeEventsDropped(epoch="recorded-0", count=2, first=7, last=9, reason="DiskFull")),
    ]


async def change_and_delete(client: KubeClient) -> None:
    """Delete one object of each kind; the others stay, so that no table is empty."""
    t4 = sorted(name for name, product in (await products(client)).items() if product == "t4")
    await mark(client, t4[0], labels={LABEL_IGNORE: "true"})
    host = (await client.get(GPU_DEVICES, t4[0]))["status"]["nodeName"]
    await client.merge_patch(NODES, host, {"metadata": {"labels": {LABEL_ENABLED: "false"}}})
    await client.delete(RESOURCE_CLAIMS, "over", "default")
    await client.delete(RESOURCE_SLICES, "drawer-gpus")
    await client.delete(DEVICE_CLASSES, "old")
    await client.delete(DEVICE_TAINT_RULES, "done")
    await client.delete(NAMESPACES, "closed")
    await client.delete(NODE_FEATURES, SPARE, "default")
    await client.delete(NODES, SPARE)


async def leave_pools(client: KubeClient, ledger: Ledger) -> None:
    """Create pods that request units, delete one, take a device out of its pool, and delete the pool."""
    for pod in manifests("pods"):
        await client.create(KINDS["Pod"], pod)
    await recorded(ledger, "pod.observed")
    await client.delete(PODS, "demo-local", "gpu-team-local")
    given = await client.list(GPU_DEVICES)
    for one in given.items:
        if (one["metadata"].get("annotations") or {}).get(ANNOTATION_ASSIGNMENT) == "local-x":
            await mark(client, one["metadata"]["name"])
    await recorded(ledger, "device.pool-released")
    await client.delete(GPU_POOLS, "local-x", "gpu-team-local")
    await recorded(ledger, "pool.gone", "pool.released", "pod.gone")


async def go_wrong(client: KubeClient, ledger: Ledger) -> None:
    """Report a card of a pool as failed, and its set-up as refused; neither recovers."""
    name = next(name for name, product in sorted((await products(client)).items()) if product == "h200")
    device = (await client.get(GPU_DEVICES, name))["status"]
    failed = DeviceHealthChanged(healthy=False, kind="XID 79", message="fell off the bus")
    refused = DevicePoolRefused(pool="cluster-a", reason="DeviceInUse", message="a process holds it")
    await Agent(ledger, device["nodeName"]).report((device["hardware"]["uuid"], failed), (name, refused))


async def lose_and_find(ledger: Ledger) -> None:
    """Leave out a number of two agents; once the gaps are detected, publish one of the missing events."""
    late, lost = Agent(ledger, "spare-02"), Agent(ledger, "spare-03")
    for agent in (late, lost):
        agent.number = 1
    fact = NodeAgentStarted(version="1", hardware="nvml", clean=False, durable=False)
    for agent in (late, lost):
        await agent.report((agent.node, fact))
    await ledger.publish(unfit(1, "/nodes/spare-04/agent"))
    await ledger.publish(Outgoing("ledger.node.spare-04.device.d.failed", "garbage", b"no event at all"))
    await recorded(ledger, "source.rejected", "source.gap-detected")
    late.number = 0
    await late.report((late.node, fact))
    await recorded(ledger, "source.gap-closed")


async def break_a_service(ledger: Ledger) -> Offset:
    """Publish an event that only a defective service would; projections stop at its position, which is returned."""
    return (await ledger.publish(unfit(1, "/services/inventory"))).sequence


class Agent:
    """Publishes as the agent of a node."""

    def __init__(self, ledger: Ledger, node: str) -> None:
        self.node = node
        self.number = 0
        self._ledger = ledger

    async def report(self, *facts: tuple[str, Payload]) -> None:
        """Publish facts, each with its subject, under the next numbers."""
        source = f"/nodes/{self.node}/agent"
        for subject, data in facts:
            self.number += 1
            event_id = f"{self.node}-{self.number}"
            event = Event(event_id, source, data.TYPE, subject, system_clock(), data, "recorded-1", self.number)
            await self._ledger.publish(outgoing(event))


async def recorded(ledger: Ledger, *events: str) -> None:
    """Return when the ledger holds all of these, each named `aggregate.event`."""
    missing = set(events)

    async def are_recorded() -> bool:
        for event in sorted(missing):
            aggregate, name = event.split(".")
            if await ledger.last_sequence(f"ledger.*.*.{aggregate}.*.{name}"):
                missing.discard(event)
        return not missing

    try:
        await eventually(are_recorded, interval_s=0.2)
    except TimeoutError:
        raise SystemExit(f"Not recorded within {WAIT_MAX_S:.0f} s: {', '.join(sorted(missing))}") from None


async def close(data: Path) -> bytes:
    """Dump the database, and then record events that no projection has folded: a build may stop at any moment."""
    async with (
        embedded_servers(data, command="record", now=system_clock()) as servers,
        connect_ledger(servers.endpoints.nats_url, name="recorder") as ledger,
    ):
        await stop_before_publishing(ledger, servers.endpoints.database_url)
        dump = dump_database(servers.endpoints.database_url)
        fact = DeviceFailed(kind="DBE", message="found by the next build")
        await Agent(ledger, "spare-05").report(*((f"GPU-{number}", fact) for number in range(3)))
    return dump


async def stop_before_publishing(ledger: JetStreamLedger, database_url: str) -> None:
    """Leave a decision in the outbox, as a process does that ends before it publishes."""
    await Agent(ledger, "spare-06").report((SPARE_CARD, DeviceWithdrawn()))  # which no agent may publish
    failing = Failing(ledger)
    failing.fails = "before"
    with suppress(PublishError):
        await Runner(SourcesProjection(), failing, database_url).catch_up(await ledger.head())


def report(recording: Recording, dump: bytes) -> None:
    """Print what the recording lacks, for its README."""
    found = {tuple(message.subject.split(".")[3::2]) for message in recording.messages()}
    names = [parse_type(model.TYPE) for model in registry.models()]
    print("events that it lacks:", *(name for name in names if (name.aggregate, name.event) not in found), sep="\n  ")
    pairs = pairwise(dump.decode().splitlines())
    empty = [line.split()[1] for line, following in pairs if line.startswith("COPY ") and following == "\\."]
    print("tables without rows:", *empty, sep="\n  ")


def _table(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def _run(data: Path, *arguments: str) -> None:
    done = gpuledger(data, *arguments, LOGNAME="operator")
    if done.returncode:
        raise SystemExit(f"gpuledger {' '.join(arguments)}: {done.stderr.decode()}")


if __name__ == "__main__":
    record(FOLDER / HEAD_REVISION)
