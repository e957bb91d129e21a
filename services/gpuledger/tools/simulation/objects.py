"""The Kubernetes objects of the simulated fleet: nodes, their features and leases, and pods. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from gpuledger.api.conditions import rfc3339
from gpuledger.api.labels import NFD_NODE_NAME
from gpuledger.events.device import Card
from gpuledger.tools.simulation import labels, names
from gpuledger.tools.simulation.allocation import SimulatedPod
from gpuledger.tools.simulation.fleet import FleetNode
from gpuledger.tools.simulation.hardware import (
    CONTAINER_RUNTIME,
    GPU_RESOURCE,
    KERNEL_VERSION,
    KUBELET_VERSION,
    MIG_RESOURCE_PREFIX,
    OS_NAME,
    WHOLE_MILLI,
)
from gpuledger.tools.simulation.workload import FAILED

Object = dict[str, Any]

PODS_PER_NODE: Final = 110
CPU_PER_GPU: Final = 8
MEMORY_GIB_PER_GPU: Final = 64
LEASE_PERIODS: Final = 4
"""A lease lasts for so many heartbeats."""

_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
)
_READY = (*_HEALTHY, ("Ready", "True", "KubeletReady"))
_DOWN = (*_HEALTHY, ("Ready", "False", "KubeletNotReady"))
_REASONS: Final = {"Succeeded": ("Completed", 0), FAILED: ("Error", 1)}


class Boot(NamedTuple):
    """The boot of a node's kernel, and since when the node is up, or down for the next one."""

    boot_id: str
    since: datetime
    is_up: bool = True


def namespace(name: str, **marks: str) -> Object:
    """A namespace with labels."""
    return {"metadata": {"name": name, "labels": marks}}


def node(of: FleetNode) -> Object:
    """The Node as its kubelet registers it."""
    return {
        "metadata": {"name": of.name, "labels": labels.kubelet_labels(of)},
        "spec": {"providerID": f"{names.PROVIDER}{of.name}"},
    }


def node_labels(of: FleetNode, cards: Mapping[int, Card]) -> Object:
    """The part of the Node that NFD keeps."""
    return {"metadata": {"name": of.name, "labels": labels.feature_labels(of, cards)}}


def node_status(of: FleetNode, cards: Iterable[int], in_service: Iterable[int], boot: Boot, now: datetime) -> Object:
    """The Node's status; `cards` and `in_service` are slots."""
    times = {"lastHeartbeatTime": rfc3339(now), "lastTransitionTime": rfc3339(boot.since)}
    states = _READY if boot.is_up else _DOWN
    conditions = [{"type": kind, "status": status, "reason": reason, **times} for kind, status, reason in states]
    return {
        "metadata": {"name": of.name},
        "status": {
            "capacity": _amounts(of, cards),
            "allocatable": _amounts(of, in_service),
            "conditions": conditions,
            "addresses": [{"type": "Hostname", "address": of.name}],
            "nodeInfo": _node_info(of, boot.boot_id),
        },
    }


def node_feature(of: FleetNode, cards: Mapping[int, Card]) -> Object:
    """The NodeFeature of a node."""
    return {
        "metadata": {
            "name": of.name,
            "namespace": names.NFD_NAMESPACE,
            "labels": {NFD_NODE_NAME: of.name},
            "annotations": labels.worker_version(),
        },
        "spec": {"features": labels.features(of, cards), "labels": labels.nfd_labels(cards)},
    }


def lease(of: FleetNode, now: datetime, period_s: float) -> Object:
    """A node's heartbeat."""
    return {
        "metadata": {"name": of.name, "namespace": names.LEASE_NAMESPACE},
        "spec": {
            "holderIdentity": of.name,
            "leaseDurationSeconds": max(1, round(LEASE_PERIODS * period_s)),
            "renewTime": f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z",
        },
    }


def pod(of: SimulatedPod) -> Object:
    """A pod as a user creates it."""
    gpus = max(1, of.gpu_milli // WHOLE_MILLI)
    amounts = {of.resource: str(of.units), "cpu": str(CPU_PER_GPU * gpus), "memory": f"{MEMORY_GIB_PER_GPU * gpus}Gi"}
    return {
        "metadata": {
            "name": of.name,
            "namespace": names.DEMO_NAMESPACE,
            "labels": {names.MANAGED_BY: names.SCHEDULER, names.TEAM: of.owner},
            "annotations": {names.DURATION: f"{of.duration_s:.0f}", names.OUTCOME: of.outcome},
        },
        "spec": {
            "schedulerName": names.SCHEDULER,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [
                {"name": names.CONTAINER, "image": names.IMAGE, "resources": {"limits": amounts, "requests": amounts}}
            ],
        },
    }


def binding(place: names.PodPlace, node_name: str) -> Object:
    """The binding of a pod to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": place.name, "namespace": place.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }


def running(live: Object, now: datetime) -> Object:
    """The status of a pod whose containers run from now on."""
    time = rfc3339(now)
    return {
        "phase": "Running",
        "startTime": time,
        "conditions": _pod_conditions(live, time, ready=True),
        "containerStatuses": [
            _container(one, ready=True, state={"running": {"startedAt": time}}) for one in live["spec"]["containers"]
        ],
    }


def ended(live: Object, phase: str, now: datetime) -> Object:
    """The status of a pod whose containers have ended."""
    time = rfc3339(now)
    reason, code = _REASONS.get(phase, _REASONS[FAILED])
    started = live.get("status", {}).get("startTime") or time
    state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": time}}
    return {
        "phase": phase,
        "conditions": _pod_conditions(live, time, ready=False),
        "containerStatuses": [
            _never_started(live, one["name"]) or _container(one, ready=False, state=state)
            for one in live["spec"]["containers"]
        ],
    }


def _never_started(live: Object, container: str) -> Object | None:
    """The status of a container that still waits for the init containers; None where it has run."""
    statuses = live.get("status", {}).get("containerStatuses") or ()
    return next((one for one in statuses if one["name"] == container and "waiting" in (one.get("state") or {})), None)


def _amounts(of: FleetNode, slots: Iterable[int]) -> dict[str, str]:
    """The resources that a node offers; those of which it has nothing now stay, as zero."""
    resources = of.resources(range(len(of.addresses)))
    offered: Counter[str] = of.resources(slots)
    amounts = {resource: str(offered[resource]) for resource in (GPU_RESOURCE, *sorted(resources))}
    return {"cpu": str(of.cpus), "memory": f"{of.memory_mib}Mi", "pods": str(PODS_PER_NODE), **amounts}


def _node_info(of: FleetNode, boot_id: str) -> dict[str, str]:
    return {
        "architecture": "amd64",
        "bootID": boot_id,
        "containerRuntimeVersion": CONTAINER_RUNTIME,
        "kernelVersion": KERNEL_VERSION,
        "kubeProxyVersion": "",
        "kubeletVersion": KUBELET_VERSION,
        "machineID": of.name,
        "operatingSystem": "linux",
        "osImage": OS_NAME,
        "systemUUID": of.name,
    }


def _pod_conditions(live: Object, time: str, *, ready: bool) -> list[Object]:
    status = "True" if ready else "False"
    reason = {} if ready else {"reason": "PodCompleted"}
    own: list[Object] = [
        {"type": "Initialized", "status": "True", "lastTransitionTime": time},
        {"type": "ContainersReady", "status": status, "lastTransitionTime": time, **reason},
        {"type": "Ready", "status": status, "lastTransitionTime": time, **reason},
    ]
    types = {one["type"] for one in own}
    return [*(one for one in live.get("status", {}).get("conditions") or () if one["type"] not in types), *own]


def _container(container: Object, *, ready: bool, state: Object) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def requested_resource(live: Object) -> tuple[str, int] | None:
    """The NVIDIA resource that a pod requests, and the amount; None where it requests none, or several."""
    requested: Counter[str] = Counter()
    for container in live["spec"].get("containers") or ():
        for resource, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if (resource == GPU_RESOURCE or resource.startswith(MIG_RESOURCE_PREFIX)) and str(amount).isdigit():
                requested[resource] += int(amount)
    found = [(resource, amount) for resource, amount in requested.items() if amount]
    return found[0] if len(found) == 1 else None
