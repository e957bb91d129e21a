"""Workloads, Services and other objects that the server only stores.

No controller of the server acts on them. It reads them by type, fills in the usual defaults, and accepts every value
that fits its type.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.strategies.core_shared import BuiltinStrategy, at, fill, part_of
from gpuledger.local.kubeapi.strategies.core_template import default_pod_spec

DEPLOYMENT_SPEC: Mapping[str, Any] = {
    "replicas": 1,
    "revisionHistoryLimit": 10,
    "progressDeadlineSeconds": 600,
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
}
DAEMON_SET_SPEC: Mapping[str, Any] = {
    "revisionHistoryLimit": 10,
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
}
DAEMON_SET_STATUS: Mapping[str, Any] = {
    "currentNumberScheduled": 0,
    "numberMisscheduled": 0,
    "desiredNumberScheduled": 0,
    "numberReady": 0,
}
STATEFUL_SET_SPEC: Mapping[str, Any] = {
    "replicas": 1,
    "revisionHistoryLimit": 10,
    "podManagementPolicy": "OrderedReady",
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
}
STATEFUL_SET_STATUS: Mapping[str, Any] = {"replicas": 0, "availableReplicas": 0}
CLAIM_SPEC: Mapping[str, Any] = {"volumeMode": "Filesystem"}
CLAIM_STATUS: Mapping[str, Any] = {"phase": "Pending"}
VOLUME_SPEC: Mapping[str, Any] = {**CLAIM_SPEC, "persistentVolumeReclaimPolicy": "Retain"}
VOLUME_STATUS: Mapping[str, Any] = {"phase": "Pending"}
CLAIM: Mapping[str, Any] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": CLAIM_STATUS}
JOB_SPEC: Mapping[str, Any] = {
    "completions": 1,
    "parallelism": 1,
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}
CRON_JOB_SPEC: Mapping[str, Any] = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
}
SERVICE_SPEC: Mapping[str, Any] = {
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "internalTrafficPolicy": "Cluster",
}
SERVICE_STATUS: Mapping[str, Any] = {"loadBalancer": {}}
TEMPLATE = ("template", "spec")
JOB_TEMPLATE = ("jobTemplate", "spec", *TEMPLATE)


class StoredStrategy(BuiltinStrategy):
    """An object that the server stores with the defaults of its spec."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        status: Mapping[str, Any] | None = None,
        *,
        template: tuple[str, ...] = (),
        has_generation: bool = True,
        answers_deleted_object: bool = False,
    ) -> None:
        self._spec = spec
        self._template = template
        self.status_on_create = status
        self.has_generation = has_generation
        self.answers_deleted_object = answers_deleted_object

    def default(self, obj: Object) -> None:
        """Fill in the spec and its pod template, if any."""
        spec = part_of(obj, "spec")
        fill(spec, deepcopy(dict(self._spec)))
        if template := at(spec, *self._template) if self._template else {}:
            default_pod_spec(template)
        if self.status_on_create and "status" in obj:
            obj["status"] = {**self.status_on_create, **(obj["status"] or {})}


class StatefulSetStrategy(StoredStrategy):
    """A StatefulSet, whose claims have defaults of their own."""

    def __init__(self) -> None:
        super().__init__(STATEFUL_SET_SPEC, STATEFUL_SET_STATUS, template=TEMPLATE)

    def default(self, obj: Object) -> None:
        """Fill in the spec, its pod template and its claims."""
        super().default(obj)
        for claim in part_of(obj, "spec").get("volumeClaimTemplates") or ():
            fill(claim, deepcopy(dict(CLAIM)))
            fill(part_of(claim, "spec"), CLAIM_SPEC)
