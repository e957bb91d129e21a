"""The preflight checks of a pod of the simulated fleet, read from its object. Pure.

A pod has checks when the webhook has injected them. What fails, the pod's owner says in an annotation.
"""

from typing import Any, Final, NamedTuple

from gpuledger.api.labels import LABEL_TRUE
from gpuledger.api.preflight import (
    ANNOTATION_GANG,
    ANNOTATION_INJECTED,
    LABEL_PREFLIGHT,
    Variable,
    check_container,
    gang_config_map,
)
from gpuledger.tools.simulation import names

Object = dict[str, Any]

THRESHOLDS: Final = (Variable.LOOPBACK_THRESHOLD, Variable.ALLREDUCE_THRESHOLD, Variable.BANDWIDTH_THRESHOLD)
"""The variables with the least bandwidth that a check passes with; a container has at most one that counts."""


class ConfigMapKey(NamedTuple):
    """Where a gang's ConfigMap is."""

    namespace: str
    name: str


class InjectedCheck(NamedTuple):
    """A check of a pod. `fails_with` is the error code that it is to fail with; None: it fails where its card does."""

    name: str
    threshold_gbps: float | None = None
    fails_with: str | None = None


class PodChecks(NamedTuple):
    """The checks of a pod in their order, and how far they are.

    `passed` of them have passed, and the next one was tried `attempt` times before. `address` is that which the pod has
    already. A check that fails is tried again where `retries` says so; else it ends the pod.
    """

    checks: tuple[InjectedCheck, ...]
    gang: ConfigMapKey | None = None
    retries: bool = True
    passed: int = 0
    attempt: int = 0
    address: str | None = None


def checks_of(live: Object) -> PodChecks | None:
    """The checks of a pod; None where nothing was injected, or all of it is done."""
    metadata, spec, status = live["metadata"], live["spec"], live.get("status") or {}
    marks = metadata.get("annotations") or {}
    if (metadata.get("labels") or {}).get(LABEL_PREFLIGHT) != LABEL_TRUE or status.get("phase") == "Running":
        return None
    containers = {one["name"]: one for one in spec.get("initContainers") or ()}
    failing = _failing(marks.get(names.FAILING_CHECKS, ""))
    checks = tuple(
        InjectedCheck(name, _threshold(containers[check_container(name)]), failing.get(name))
        for name in _listed(marks.get(ANNOTATION_INJECTED, ""))
        if check_container(name) in containers
    )
    passed, attempt = _progress(checks, status)
    retries = spec.get("restartPolicy", "Always") != "Never"
    return PodChecks(checks, _gang(live), retries, passed, attempt, status.get("podIP")) if checks else None


def _gang(live: Object) -> ConfigMapKey | None:
    gang = (live["metadata"].get("annotations") or {}).get(ANNOTATION_GANG)
    return ConfigMapKey(live["metadata"]["namespace"], gang_config_map(gang)) if gang else None


def _progress(checks: tuple[InjectedCheck, ...], status: Object) -> tuple[int, int]:
    """How many checks have passed, and how often the next one was tried."""
    statuses = {one["name"]: one for one in status.get("initContainerStatuses") or ()}
    for number, check in enumerate(checks):
        found = statuses.get(check_container(check.name), {})
        terminated = (found.get("state") or {}).get("terminated")
        if terminated is None or terminated.get("exitCode") != 0:
            return number, found.get("restartCount", 0)
    return len(checks), 0


def _failing(text: str) -> dict[str, str]:
    """Error codes by check, of a text such as `nccl-loopback=NCCL_SYSTEM_ERROR`; what is no pair is left out."""
    pairs = (one.partition("=") for one in _listed(text))
    return {check.strip(): code.strip() for check, _, code in pairs if check.strip() and code.strip()}


def _listed(text: str) -> list[str]:
    return [one.strip() for one in str(text).split(",") if one.strip()]


def _threshold(container: Object) -> float | None:
    for variable in container.get("env") or ():
        if variable.get("name") in THRESHOLDS:
            try:
                return float(variable.get("value") or "")
            except ValueError:
                return None
    return None
