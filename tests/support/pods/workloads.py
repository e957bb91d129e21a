"""What the controllers of Jobs, Deployments, StatefulSets and DaemonSets make of pods: pure, over lists of objects.

Each function returns the pods to create and to delete, and the status to write; one pass follows the other.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from support.pods.network import is_ready

Object = dict[str, Any]
HASH = "pod-template-hash"


class Plan(NamedTuple):
    """What one pass does for a workload."""

    create: list[Object]
    delete: list[Object]
    status: Object


def template_hash(template: Object) -> str:
    """The label value that tells pods of one template from those of another."""
    return hashlib.sha256(orjson.dumps(template, option=orjson.OPT_SORT_KEYS)).hexdigest()[:10]


def job_plan(job: Object, pods: list[Object], now: str) -> Plan:
    """One pod after another until one succeeds, or more failed than the job allows."""
    phases = [one.get("status", {}).get("phase") for one in pods]
    failed, succeeded = phases.count("Failed"), phases.count("Succeeded")
    started = job.get("status", {}).get("startTime", now)
    status: Object = {"startTime": started, "failed": failed, "succeeded": succeeded, "active": 0}
    if succeeded:
        status |= {"completionTime": now, "conditions": _ended(("SuccessCriteriaMet", "Complete"), now)}
    elif failed > job["spec"].get("backoffLimit", 6):
        status["conditions"] = _ended(("FailureTarget", "Failed"), now)
    elif failed == len(pods):
        return Plan([pod_of(job, "batch/v1", f"{job['metadata']['name']}-{failed}")], [], {**status, "active": 1})
    else:
        status["active"] = 1
    return Plan([], [], status)


def is_finished(job: Object) -> bool:
    """Whether a job has ended."""
    conditions = job.get("status", {}).get("conditions", [])
    return any(one["type"] in {"Complete", "Failed"} and one["status"] == "True" for one in conditions)


def deployment_plan(deployment: Object, pods: list[Object], number: int) -> Plan:
    """New pods come one at a time beside the old ones, of which one goes when there are enough that are ready."""
    replicas = deployment["spec"].get("replicas", 1)
    digest = template_hash(deployment["spec"]["template"])
    new, old = _by_template(pods, digest)
    create: list[Object] = []
    delete: list[Object] = new[replicas:]
    if len(new) < replicas and len(pods) < replicas + 1:
        name = f"{deployment['metadata']['name']}-{digest[:6]}-{number}"
        create = [pod_of(deployment, "apps/v1", name, digest)]
    if old and (sum(map(is_ready, pods)) > replicas or sum(map(is_ready, new)) >= replicas or not replicas):
        delete = delete + old[:1]
    ready = sum(map(is_ready, pods))
    available = {"type": "Available", "status": "True" if ready >= replicas else "False", "reason": "Counted"}
    status = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": len(pods),
        "updatedReplicas": len(new),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": [available],
    }
    return Plan(create, delete, status)


def daemon_set_plan(daemon_set: Object, pods: list[Object], nodes: Iterable[Object]) -> Plan:
    """A pod on each node that its template fits; of an older template, one at a time is replaced."""
    spec = daemon_set["spec"]["template"]["spec"]
    digest = template_hash(daemon_set["spec"]["template"])
    fitting = [node["metadata"]["name"] for node in nodes if fits(spec, node)]
    placed = {pod["spec"]["nodeName"] for pod in pods}
    new, old = _by_template(pods, digest)
    name = daemon_set["metadata"]["name"]
    create = [
        pod_of(daemon_set, "apps/v1", f"{name}-{digest[:6]}-{node}", digest, node)
        for node in fitting
        if node not in placed
    ]
    delete = [pod for pod in pods if pod["spec"]["nodeName"] not in fitting]
    if old and all(map(is_ready, new)) and not create:
        delete = delete + [one for one in old[:1] if one not in delete]
    ready = sum(map(is_ready, pods))
    status = {
        "observedGeneration": daemon_set["metadata"]["generation"],
        "currentNumberScheduled": len(pods),
        "desiredNumberScheduled": len(fitting),
        "updatedNumberScheduled": len(new),
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": len(fitting) - ready,
        "numberMisscheduled": 0,
    }
    return Plan(create, delete, status)


def stateful_set_plan(stateful_set: Object, pods: list[Object]) -> Plan:
    """Pods of stable names, with claims of their own; the last one of an older template goes first."""
    spec, metadata = stateful_set["spec"], stateful_set["metadata"]
    replicas, digest = spec.get("replicas", 1), template_hash(spec["template"])
    new, old = _by_template(pods, digest)
    present = {pod["metadata"]["name"] for pod in pods}
    names = [f"{metadata['name']}-{number}" for number in range(replicas)]
    absent = [name for name in names if name not in present]
    in_order = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    if in_order:
        absent = absent[:1] if all(map(is_ready, pods)) else []
    create = [_stateful_pod(stateful_set, name, digest) for name in absent]
    delete = [pod for pod in pods if pod["metadata"]["name"] not in names]
    if old and not delete and len(pods) == replicas and all(map(is_ready, new)):
        delete = [max(old, key=lambda pod: pod["metadata"]["name"])]
    ready = sum(map(is_ready, pods))
    status = {
        "observedGeneration": metadata["generation"],
        "replicas": len(pods),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "currentReplicas": len(new),
        "updatedReplicas": len(new),
        "currentRevision": digest,
        "updateRevision": digest,
    }
    return Plan(create, delete, status)


def _stateful_pod(stateful_set: Object, name: str, digest: str) -> Object:
    pod = pod_of(stateful_set, "apps/v1", name, digest)
    spec = pod["spec"]
    spec |= {"hostname": name, "subdomain": stateful_set["spec"].get("serviceName", "")}
    claims = [one["metadata"]["name"] for one in stateful_set["spec"].get("volumeClaimTemplates", [])]
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": f"{one}-{name}"}} for one in claims]
    spec["volumes"] = [*(one for one in spec.get("volumes", []) if one["name"] not in claims), *volumes]
    pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = name.rpartition("-")[2]
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name
    return pod


def pod_of(owner: Object, api_version: str, name: str, digest: str = "", node: str = "") -> Object:
    """A pod of an owner's template."""
    metadata, template = owner["metadata"], orjson.loads(orjson.dumps(owner["spec"]["template"]))
    labels = {**(template.get("metadata", {}).get("labels") or {})}
    if digest:
        labels[HASH] = digest
    reference = {
        "apiVersion": api_version,
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    own = {
        "name": name,
        "namespace": metadata["namespace"],
        "labels": labels,
        "annotations": template.get("metadata", {}).get("annotations") or {},
        "ownerReferences": [reference],
    }
    spec = template["spec"] | ({"nodeName": node} if node else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": spec}


def fits(spec: Object, node: Object) -> bool:
    """Whether a pod may run on a node, by its node selector, its required node affinity and the node's taints."""
    labels = node["metadata"].get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = affinity["nodeSelectorTerms"] if affinity else []
    if terms and not any(all(_matches(one, labels) for one in term.get("matchExpressions", [])) for term in terms):
        return False
    taints = [one for one in node["spec"].get("taints", []) if one["effect"] != "PreferNoSchedule"]
    return all(any(_tolerates(one, taint) for one in spec.get("tolerations", [])) for taint in taints)


def _matches(expression: Object, labels: dict[str, str]) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
    raise AssertionError(f"no such operator is scheduled here: {expression}")


def _tolerates(toleration: Object, taint: Object) -> bool:
    same = toleration.get("key") in {None, taint["key"]} and toleration.get("effect") in {None, taint["effect"]}
    return same and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))


def _by_template(pods: list[Object], digest: str) -> tuple[list[Object], list[Object]]:
    new = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(HASH) == digest]
    return new, [pod for pod in pods if pod not in new]


def _ended(kinds: tuple[str, ...], now: str) -> list[Object]:
    return [{"type": kind, "status": "True", "reason": "Ended", "lastTransitionTime": now} for kind in kinds]
