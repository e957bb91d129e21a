"""RDMA registers memory, for which a process needs IPC_LOCK: checks over the network have it where the pod has it."""

from typing import Any

import pytest

from gpuledger.edge.preflight.injection import inject
from support.preflight import golden_pods

(GOLDEN,) = (one for one in golden_pods() if one.name == "locks-memory")


def contexts(security: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """The security contexts of the checks dcgm-diag and nccl-loopback of a pod whose container has this one."""
    (container,) = GOLDEN.pod["spec"]["containers"]
    spec = {**GOLDEN.pod["spec"], "containers": [{**container, "securityContext": security}], **more}
    pod = inject({**GOLDEN.pod, "spec": spec}, GOLDEN.findings, GOLDEN.configuration).pod
    return [one["securityContext"] for one in pod["spec"]["initContainers"]]


@pytest.mark.parametrize("security", [{"capabilities": {"add": ["SYS_PTRACE", "IPC_LOCK"]}}, {"privileged": True}])
def test_a_pod_that_locks_memory_has_checks_that_do(security: dict[str, Any]) -> None:
    diag, loopback = contexts(security)
    assert (diag["capabilities"], "runAsUser" in diag) == ({"drop": ["ALL"]}, False)
    assert (loopback["capabilities"], loopback["runAsUser"]) == ({"drop": ["ALL"], "add": ["IPC_LOCK"]}, 0)
    assert not loopback["privileged"]


@pytest.mark.parametrize("security", [{}, {"capabilities": {"add": ["NET_ADMIN"]}}, {"privileged": False}])
def test_no_other_pod_has(security: dict[str, Any]) -> None:
    assert contexts(security)[1]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    "whole", [{"runAsUser": 1000}, {"runAsNonRoot": True}, {"runAsNonRoot": True, "runAsUser": 1000}]
)
def test_a_pod_without_root_has_no_check_with_it(whole: dict[str, Any]) -> None:
    found = contexts({"capabilities": {"add": ["IPC_LOCK"]}}, securityContext=whole)[1]
    assert found.get("runAsUser", 1000) == 1000
