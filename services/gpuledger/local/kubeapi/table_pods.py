"""Computes the cells of `kubectl get pods`, above all the one state that sums a pod up.

The most specific state wins: why a container waits or ended, then the progress of init containers, then the phase.
"""

from collections.abc import Sequence
from datetime import datetime

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.table_cells import NONE, Cell, age, at, field
from gpuledger.local.kubeapi.tables_age import age_of

POD_LOST = "NodeLost"


def ready(obj: Object, _: datetime) -> object:
    """The number of ready containers, as `1/2`."""
    statuses = at(obj, "status.containerStatuses") or ()
    done = sum(1 for one in statuses if one.get("ready") and at(one, "state.running") is not None)
    sidecars = [one for one in at(obj, "spec.initContainers") or () if one.get("restartPolicy") == "Always"]
    return f"{done}/{len(at(obj, 'spec.containers') or ()) + len(sidecars)}"


def restarts(obj: Object, now: datetime) -> object:
    """The number of restarts, and the age of the last one."""
    statuses: Sequence[Object] = at(obj, "status.containerStatuses") or ()
    count = sum(one.get("restartCount", 0) for one in statuses)
    ends = [end for one in statuses if (end := at(one, "lastState.terminated.finishedAt"))]
    return f"{count} ({age_of(max(ends), now)} ago)" if count and ends else str(count)


def status(obj: Object, _: datetime) -> object:
    """The state to show."""
    shown = _init_state(obj) or _state(obj)
    if not obj["metadata"].get("deletionTimestamp"):
        return shown
    return "Unknown" if at(obj, "status.reason") == POD_LOST else "Terminating"


def _state(obj: Object) -> str:
    gated = any(one.get("reason") == "SchedulingGated" for one in at(obj, "status.conditions") or ())
    shown = "SchedulingGated" if gated else str(at(obj, "status.reason") or at(obj, "status.phase") or "")
    statuses: Sequence[Object] = at(obj, "status.containerStatuses") or ()
    for one in reversed(statuses):
        shown = _waiting(one) or _terminated(one) or shown
    is_running = any(one.get("ready") and at(one, "state.running") is not None for one in statuses)
    if shown == "Completed" and is_running:
        return "Running" if _is_ready(obj) else "NotReady"
    return shown


def _is_ready(obj: Object) -> bool:
    conditions = at(obj, "status.conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _init_state(obj: Object) -> str:
    """The progress of init containers; empty once they are done."""
    sidecars = {one["name"] for one in at(obj, "spec.initContainers") or () if one.get("restartPolicy") == "Always"}
    for index, one in enumerate(at(obj, "status.initContainerStatuses") or ()):
        is_done = at(one, "state.terminated") is not None and at(one, "state.terminated.exitCode") in {0, None}
        if is_done or (one.get("name") in sidecars and one.get("started")):
            continue
        reason = _terminated(one) if at(one, "state.terminated") is not None else _waiting(one)
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{index}/{len(at(obj, 'spec.initContainers') or ())}"
    return ""


def _waiting(container: Object) -> str:
    return str(at(container, "state.waiting.reason") or "")


def _terminated(container: Object) -> str:
    ended = at(container, "state.terminated")
    if ended is None:
        return ""
    if ended.get("reason"):
        return str(ended["reason"])
    signal = ended.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"


def _gates(obj: Object, _: datetime) -> object:
    gates = [one.get("conditionType") for one in at(obj, "spec.readinessGates") or ()]
    if not gates:
        return NONE
    held = {one.get("type") for one in at(obj, "status.conditions") or () if one.get("status") == "True"}
    return f"{sum(1 for name in gates if name in held)}/{len(gates)}"


POD_COLUMNS: tuple[tuple[str, Cell], ...] = (
    ("Ready", ready),
    ("Status", status),
    ("Restarts", restarts),
    ("Age", age),
    ("+IP", field("status.podIP", NONE)),
    ("+Node", field("spec.nodeName", NONE)),
    ("+Nominated Node", field("status.nominatedNodeName", NONE)),
    ("+Readiness Gates", _gates),
)
