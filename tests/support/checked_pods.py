"""Pods as the preflight webhook leaves them: with a label, annotations and init containers of their checks."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gpuledger.api.labels import LABEL_TRUE
from gpuledger.api.preflight import (
    ANNOTATION_GANG,
    ANNOTATION_INJECTED,
    LABEL_PREFLIGHT,
    GangKey,
    Variable,
    check_container,
    gang_config_map,
)
from gpuledger.tools.simulation.hardware import GPU_RESOURCE
from gpuledger.tools.simulation.names import FAILING_CHECKS

TRAINING: Final = "training"
CHECKS: Final = ("dcgm-diag", "nccl-loopback", "nccl-allreduce")


def checked_pod(
    name: str,
    checks: Sequence[str] = CHECKS,
    *,
    gang: str | None = None,
    failing: str | None = None,
    restarts: str = "OnFailure",
    gpus: int = 1,
) -> dict[str, Any]:
    """A pod in the namespace `training`; `failing` is the annotation about the checks that fail."""
    limits = {"limits": {GPU_RESOURCE: str(gpus)}}
    marks = {ANNOTATION_INJECTED: ",".join(checks), ANNOTATION_GANG: gang, FAILING_CHECKS: failing}
    threshold = [{"name": Variable.LOOPBACK_THRESHOLD, "value": "10"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": TRAINING,
            "labels": {LABEL_PREFLIGHT: LABEL_TRUE},
            "annotations": {key: value for key, value in marks.items() if value is not None},
        },
        "spec": {
            "restartPolicy": restarts,
            "initContainers": [
                {"name": check_container(one), "image": "checks", "env": threshold, "resources": limits}
                for one in checks
            ],
            "containers": [{"name": "main", "image": "train", "resources": limits}],
        },
    }


def config_map(gang: str, expected: int, peers: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The ConfigMap of a gang as the service keeps it."""
    lines = "".join(f"{pod}:{address}\n" for pod, address in peers)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": gang_config_map(gang), "namespace": TRAINING},
        "data": {
            GangKey.EXPECTED_COUNT.value: str(expected),
            GangKey.PEERS.value: lines,
            GangKey.GANG_ID.value: gang,
        },
    }
