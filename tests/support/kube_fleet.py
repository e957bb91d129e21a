"""A fleet of one card in a ledger and in a Kubernetes API: the same card in both."""

from contextlib import suppress
from typing import Any

from gpuledger.api.kinds import GPU_DEVICES, NODE_FEATURES, NODES, Resource
from gpuledger.api.labels import device_label
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import AlreadyExistsError
from gpuledger.events.device import DeviceAttached, DeviceDetected, DeviceFailed, DeviceInserted, Hardware
from gpuledger.events.node import NodeRegistered
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.workload import DeviceShare, WorkloadScheduled, WorkloadSubmitted
from gpuledger.tools.cluster import CORE_EVENTS
from support.events import RecordedFact, numbered, outgoing
from support.examples import ACCOUNTS
from support.ledgers import new_ledger

STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass")
INVENTORY, IMPORT = "/services/inventory", "/import/titan"
NAME, UUID, SERIAL, SLOT = "w1-0000-17-00-0", "GPU-1", "0321", "w1/0000:17:00.0"
CARD = Hardware(uuid=UUID, serial=SERIAL, product="NVIDIA H200", pci_address="0000:17:00.0")

FACTS = [
    RecordedFact(IMPORT, "w1", 0, NodeRegistered(gpu_count=8, gpu_model="H200")),
    RecordedFact(IMPORT, "elsewhere", 0, SlotDeclared(node="w9")),
    RecordedFact(INVENTORY, NAME, 1, DeviceDetected(hardware=CARD, managed=True, node="w1", card=UUID)),
    RecordedFact(
        INVENTORY, UUID, 1, DeviceAttached(name=NAME, slot=SLOT, serial=SERIAL, uuid=UUID, model="NVIDIA H200")
    ),
    RecordedFact(IMPORT, UUID, 3, DeviceFailed(kind="XID 79", slot=SLOT, message="fell off the bus")),
    RecordedFact(IMPORT, "job-1", 2, WorkloadSubmitted(gpu_milli=1000)),
    RecordedFact(
        IMPORT,
        "job-1",
        2,
        WorkloadScheduled(node="w1", gpu_milli=1000, devices=(DeviceShare(device=UUID, gpu_milli=1000),)),
    ),
    RecordedFact(IMPORT, "other", 4, DeviceInserted(slot="elsewhere")),
]


async def publish(nats_url: str, facts: list[RecordedFact]) -> None:
    async with new_ledger(nats_url) as ledger:
        await ledger.publish_many([outgoing(event) for event in numbered(facts)])


async def create(client: KubeClient, resource: Resource, obj: dict[str, Any]) -> None:
    await client.create(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **obj})


async def create_account(client: KubeClient, namespace: str) -> None:
    """Have the service account that the pods of a namespace need; a controller may have made it already."""
    with suppress(AlreadyExistsError):
        await create(client, ACCOUNTS, {"metadata": {"name": "default", "namespace": namespace}})


async def create_storage_class(client: KubeClient, name: str, *, is_default: bool = True) -> None:
    """Have a StorageClass; most clusters have a default one."""
    annotations = {"storageclass.kubernetes.io/is-default-class": str(is_default).lower()}
    obj = {"metadata": {"name": name, "annotations": annotations}, "provisioner": "rancher.io/local-path"}
    await create(client, STORAGE_CLASSES, obj)


async def create_device(client: KubeClient, name: str, node: str = "w1", **status: Any) -> None:
    await create(client, GPU_DEVICES, {"metadata": {"name": name, "labels": {"rack": node}}})
    full = {"nodeName": node, "state": "Ready", "managed": True, **status}
    await client.merge_patch(GPU_DEVICES, name, {"status": full}, subresource="status")


async def create_event(client: KubeClient, kind: str, name: str, reason: str, at: str) -> None:
    api_version = {"Node": "v1", "GPUDevice": "gpu.deckhouse.io/v1alpha1"}[kind]
    about = {"kind": kind, "name": name, "apiVersion": api_version, "uid": f"uid-{name}"}
    event = {
        "metadata": {"name": f"{name}.{reason.lower()}", "namespace": "default"},
        "involvedObject": about,
        "reason": reason,
        "message": f"{reason} it is",
        "type": "Warning",
        "source": {"component": "kubelet"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    await create(client, CORE_EVENTS, event)


async def label_like_nfd(client: KubeClient, node: str, **changes: str) -> None:
    attributes = {"vendor": "10de", "device": "2335", "class": "0302"}
    features = {"instances": {"pci.device": {"elements": [{"attributes": attributes}]}}}
    labels = {"gpu.deckhouse.io/present": "true", "gpu.deckhouse.io/device-count": "1"}
    labels |= {device_label(0, fact): value for fact, value in attributes.items()} | changes
    await create(client, NODES, {"metadata": {"name": node, "labels": labels}})
    found = {"name": node, "namespace": "default", "labels": {"nfd.node.kubernetes.io/node-name": node}}
    await create(client, NODE_FEATURES, {"metadata": found, "spec": {"features": features}})
