"""Pods with an injected check of gangs in Kubernetes, as far as a test has them."""

from typing import Any, Final

from gpuledger.api.kinds import PODS
from gpuledger.api.preflight import ANNOTATION_GANG, ANNOTATION_INJECTED, LABEL_PREFLIGHT, Variable
from gpuledger.edge.kube.client import KubeClient
from support.kube_fleet import create

STARTED: Final = "2026-03-01T03:00:00+00:00"


async def create_checked(client: KubeClient, name: str, *, state: dict[str, Any]) -> str:
    """A pod of the gang g with a check of gangs, whose container has this state; returns its UID."""
    env = [{"name": str(Variable.GANG_TIMEOUT), "value": "10m"}]
    check = {"name": "preflight-nccl-allreduce", "image": "none", "env": env}
    annotations = {ANNOTATION_INJECTED: "nccl-allreduce", ANNOTATION_GANG: "g"}
    metadata = {"name": name, "namespace": "ml", "annotations": annotations, "labels": {LABEL_PREFLIGHT: "true"}}
    spec = {"initContainers": [check], "containers": [{"name": "c", "image": "none"}], "serviceAccountName": "default"}
    await create(client, PODS, {"metadata": metadata, "spec": {**spec, "nodeName": "n1"}})
    status = {"name": check["name"], "ready": False, "restartCount": 0, "image": "none", "imageID": "", "state": state}
    patch = {"status": {"phase": "Pending", "initContainerStatuses": [status]}}
    made = await client.merge_patch(PODS, name, patch, "ml", subresource="status")
    return str(made["metadata"]["uid"])
