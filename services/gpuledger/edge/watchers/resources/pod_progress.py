"""How far a pod is: which container it waits for, and whether it waits in vain. Pure; nothing here raises.

A pod that fails in the same way again and again has the same progress each time, so everything that changes with each
restart is left out: counts, pauses and container ids.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpuledger.domain.pools.requests import is_sidecar
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.watchers.fields import text

TERMINATING: Final = "Terminating"
FAILED: Final = "Failed"
ENDED: Final = (FAILED, "Succeeded")
CRASHING: Final = "CrashLoopBackOff"
FAILING_REASONS: Final = frozenset(
    {
        CRASHING,
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""Reasons of waiting that waiting does not end."""

MESSAGE_LENGTH_MAX: Final = 1024
EXIT_CODE_MAX: Final = 2**31 - 1
_CONTAINER_ID: Final = re.compile(r"[0-9a-f]{64}")


class PodProgress(NamedTuple):
    """`step` is the first container, in the order in which they run, that is not done or not ready."""

    ready: bool
    failing: bool = False
    step: str | None = None
    reason: str | None = None
    message: str = ""


class ContainerFailure(NamedTuple):
    """Why a container, or the whole pod, will not become ready."""

    reason: str
    message: str


class ContainerStep(NamedTuple):
    """A container: whether it is done or ready, and what prevents that."""

    name: str | None
    is_done: bool
    failure: ContainerFailure | None


def progress_of(pod: Mapping[str, Any]) -> PodProgress:
    """How far the pod is."""
    status = mapping(pod, "status")
    if mapping(pod, "metadata").get("deletionTimestamp") is not None:
        return PodProgress(ready=False, reason=TERMINATING)
    if _is_ready(status):
        return PodProgress(ready=True)
    steps = list(_steps(pod))
    step = next((one.name for one in steps if not one.is_done), None)
    failure = _failure_of_pod(status) or next((one.failure for one in steps if one.failure), None)
    if failure is None and status.get("phase") == FAILED:
        failure = ContainerFailure(FAILED, "")
    if failure is None:
        return PodProgress(ready=False, step=step)
    return PodProgress(ready=False, failing=True, step=step, reason=failure.reason, message=failure.message)


def _is_ready(status: Mapping[str, Any]) -> bool:
    conditions = map(mapping, items(status, "conditions"))
    is_reported = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return is_reported and status.get("phase") not in ENDED


def _failure_of_pod(status: Mapping[str, Any]) -> ContainerFailure | None:
    """Why the whole pod failed, where its status says so, as after an eviction."""
    reason = text(status.get("reason"))
    if status.get("phase") != FAILED or reason is None:
        return None
    return ContainerFailure(reason, _worded(status.get("message")))


def _steps(pod: Mapping[str, Any]) -> Iterator[ContainerStep]:
    """The containers in the order in which they run."""
    for one, status in _containers(pod, "initContainers", "initContainerStatuses"):
        has_ended = _exit_code(mapping(status, "state", "terminated")) == 0
        is_done = status.get("ready") is True if is_sidecar(one) else has_ended
        yield _step(one, status, is_done=is_done)
    for one, status in _containers(pod, "containers", "containerStatuses"):
        yield _step(one, status, is_done=status.get("ready") is True)


def _step(container: Mapping[str, Any], status: Mapping[str, Any], *, is_done: bool) -> ContainerStep:
    name = text(container.get("name"))
    return ContainerStep(
        name, is_done, None if is_done else _failure_of(name or "a container", mapping(status, "state"), status)
    )


def _containers(
    pod: Mapping[str, Any], containers: str, statuses: str
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Containers, each with its status; an empty one where there is none yet."""
    found = {text(one.get("name")): one for one in map(mapping, items(pod, "status", statuses))}
    for one in map(mapping, items(pod, "spec", containers)):
        yield one, found.get(text(one.get("name")), {})


def _failure_of(name: str, state: Mapping[str, Any], status: Mapping[str, Any]) -> ContainerFailure | None:
    waiting, ended = mapping(state, "waiting"), mapping(state, "terminated")
    reason = text(waiting.get("reason"))
    if reason == CRASHING:
        return ContainerFailure(CRASHING, _ending(name, mapping(status, "lastState", "terminated")))
    if reason in FAILING_REASONS:
        return ContainerFailure(reason, _worded(f"{name}: {waiting.get('message') or reason}"))
    if state.get("running") is None and _exit_code(ended):
        return ContainerFailure(text(ended.get("reason")) or "Error", _ending(name, ended))
    return None


def _ending(name: str, ended: Mapping[str, Any]) -> str:
    """How a container ended, as a message."""
    code, message = _exit_code(ended), ended.get("message")
    how = f"{name} ended" if code is None else f"{name} ended with exit code {code}"
    return _worded(f"{how}: {message}" if isinstance(message, str) and message else how)


def _exit_code(ended: Mapping[str, Any]) -> int | None:
    code = ended.get("exitCode")
    is_one = isinstance(code, int) and not isinstance(code, bool) and abs(code) <= EXIT_CODE_MAX
    return code if is_one else None


def _worded(message: object) -> str:
    """A message as an event can hold it, without the ids of containers, which differ with every start."""
    if not isinstance(message, str):
        return ""
    return _CONTAINER_ID.sub("...", message.replace("\0", ""))[:MESSAGE_LENGTH_MAX]
