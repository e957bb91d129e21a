"""The pods of the components as the Kubernetes API shows them. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.labels import LABEL_APP
from gpuledger.tools.simulation import names
from gpuledger.tools.simulation.components import Component
from gpuledger.tools.simulation.objects import timestamp

Object = dict[str, Any]


def pod_name(app: str, node: str) -> str:
    """The name of a node's pod."""
    return f"{app}-{node}"


def pod(component: Component, node: str) -> Object:
    """A pod as its DaemonSet creates it: for one node, and run by it without a scheduler."""
    return {
        "metadata": {
            "name": pod_name(component.app, node),
            "namespace": NAMESPACE,
            "labels": {LABEL_APP: component.app, names.MANAGED_BY: names.SCHEDULER},
        },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "initContainers": [_container(name) for name in component.init_containers],
            "containers": [_container(component.app)],
        },
    }


def ready(component: Component, now: datetime) -> Object:
    """The status of a pod whose init containers are done and whose container serves."""
    time = timestamp(now)
    conditions = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": time, "finishedAt": time}}
    running = {"running": {"startedAt": time}}
    return {
        "phase": "Running",
        "startTime": time,
        "conditions": [{"type": one, "status": "True", "lastTransitionTime": time} for one in conditions],
        "initContainerStatuses": [_status(name, done, started=False) for name in component.init_containers],
        "containerStatuses": [_status(component.app, running, started=True)],
    }


def ready_apps(pods: Iterable[Object]) -> dict[str, set[str]]:
    """Which components are ready already, by node."""
    found: dict[str, set[str]] = {}
    for one in pods:
        conditions = one.get("status", {}).get("conditions") or ()
        if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions):
            app = one["metadata"]["labels"].get(LABEL_APP, "")
            found.setdefault(one["spec"].get("nodeName", ""), set()).add(app)
    return found


def _container(name: str) -> Object:
    return {"name": name, "image": names.IMAGE}


def _status(name: str, state: Object, *, started: bool) -> Object:
    return {
        "name": name,
        "image": names.IMAGE,
        "imageID": "",
        "ready": True,
        "started": started,
        "restartCount": 0,
        "state": state,
    }
