"""The components that prepare a simulated node: DaemonSets with one pod per node, and these pods as objects. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.api.conditions import rfc3339
from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.labels import COMPONENT_BY_APP, LABEL_APP
from gpuledger.tools.simulation import names

Object = dict[str, Any]

_APP: Final = {component: app for app, component in COMPONENT_BY_APP.items()}


class Daemon(NamedTuple):
    """A DaemonSet, and how many simulated seconds after its node came up its pod is ready."""

    app: str
    ready_after_s: float
    init_containers: tuple[str, ...] = ()


NODE_AGENT: Final = Daemon(_APP["node-agent"], 5.0)
VALIDATOR: Final = Daemon(_APP["validator"], 20.0, ("driver-validation", "toolkit-validation", "cuda-validation"))
FEATURE_DISCOVERY: Final = Daemon(_APP["gfd"], 25.0)
DCGM: Final = Daemon(_APP["dcgm"], 30.0)
EXPORTER: Final = Daemon(_APP["dcgm-exporter"], 35.0)
COMPONENTS: Final = (NODE_AGENT, VALIDATOR, FEATURE_DISCOVERY, DCGM, EXPORTER)
"""In the order in which they become ready."""


def pod_name(app: str, node: str) -> str:
    """The name of a node's pod."""
    return f"{app}-{node}"


def pod(component: Daemon, node: str) -> Object:
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


def ready(component: Daemon, now: datetime) -> Object:
    """The status of a pod whose init containers are done and whose container serves."""
    time = rfc3339(now)
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
