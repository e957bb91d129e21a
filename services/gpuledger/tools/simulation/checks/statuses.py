"""The status of a pod that goes through checks, as its node's kubelet reports it. Pure."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from gpuledger.api.conditions import rfc3339
from gpuledger.api.preflight import check_container
from gpuledger.tools.simulation import objects
from gpuledger.tools.simulation.checks.course import CheckEnded, CheckStarted

Object = dict[str, Any]

_WAITING: Final = {"waiting": {"reason": "PodInitializing"}}


def bound(live: Object, address: str, now: datetime) -> Object:
    """The status of a pod that has come to its node, with its address; none of its containers runs."""
    time = rfc3339(now)
    conditions = [one for one in live.get("status", {}).get("conditions") or () if one["type"] not in _NOT_YET]
    return {
        "phase": "Pending",
        "startTime": time,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            *conditions,
            *({"type": one, "status": "False", "lastTransitionTime": time, **_NOT_YET[one]} for one in _NOT_YET),
        ],
        "initContainerStatuses": [_container(one, _WAITING) for one in live["spec"]["initContainers"]],
        "containerStatuses": [_container(one, _WAITING) for one in live["spec"]["containers"]],
    }


_NOT_YET: Final = {
    "Initialized": {"reason": "ContainersNotInitialized"},
    "ContainersReady": {"reason": "ContainersNotReady"},
    "Ready": {"reason": "ContainersNotReady"},
}


def started(live: Object, happening: CheckStarted, now: datetime) -> Object:
    """The status of a pod whose check runs from now on."""
    running = {"running": {"startedAt": rfc3339(now)}}
    return _with(live, happening.check, lambda one: one | {"state": running, "restartCount": happening.attempt})


def ended(live: Object, happening: CheckEnded, now: datetime) -> Object:
    """The status of a pod whose check has ended; one that is tried again waits."""

    def changed(before: Object) -> Object:
        terminated = {"terminated": _terminated(before, happening, rfc3339(now))}
        if happening.pause_s is None:
            return before | {"state": terminated, "ready": happening.exit_code == 0}
        message = f"back-off {happening.pause_s:.0f}s restarting failed container {before['name']}"
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        return before | {"state": waiting, "lastState": terminated, "ready": False}

    return _with(live, happening.check, changed)


def passed(live: Object, now: datetime) -> Object:
    """The status of a pod whose init containers are all done, and whose containers run from now on."""
    time = rfc3339(now)
    return objects.running(live, now) | {
        "startTime": live["status"].get("startTime", time),
        "initContainerStatuses": [_done(one, time) for one in _init_statuses(live)],
    }


def _terminated(before: Object, happening: CheckEnded, time: str) -> Object:
    running = before.get("state", {}).get("running") or {}
    return {
        "exitCode": int(happening.exit_code),
        "reason": "Completed" if happening.exit_code == 0 else "Error",
        "message": happening.result.model_dump_json(exclude_none=True),
        "startedAt": running.get("startedAt", time),
        "finishedAt": time,
    }


def _done(status: Object, time: str) -> Object:
    """An init container of the pod's owner has ended as well."""
    if "terminated" in status["state"]:
        return status
    done = {"exitCode": 0, "reason": "Completed", "startedAt": time, "finishedAt": time}
    return status | {"state": {"terminated": done}, "ready": True}


def _with(live: Object, check: str, changed: Callable[[Object], Object]) -> Object:
    name = check_container(check)
    statuses = [changed(one) if one["name"] == name else one for one in _init_statuses(live)]
    return {"initContainerStatuses": statuses}


def _init_statuses(live: Object) -> list[Object]:
    present = {one["name"]: one for one in (live.get("status") or {}).get("initContainerStatuses") or ()}
    return [present.get(one["name"]) or _container(one, _WAITING) for one in live["spec"]["initContainers"]]


def _container(container: Object, state: Object) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": state,
    }
