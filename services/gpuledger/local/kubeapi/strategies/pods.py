"""Pods: defaults, allowed changes, graceful deletion and binding.

The server has no scheduler and no kubelet: a pod stays Pending until a client binds it and writes its status.
"""

from collections.abc import Mapping
from datetime import datetime

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden
from gpuledger.local.kubeapi.errors import bad_request, conflict, internal
from gpuledger.local.kubeapi.resources import Context, timestamp
from gpuledger.local.kubeapi.strategies import ephemeral_containers
from gpuledger.local.kubeapi.strategies.core_podchange import update_causes
from gpuledger.local.kubeapi.strategies.core_podspec import pod_causes
from gpuledger.local.kubeapi.strategies.core_qos import qos_class
from gpuledger.local.kubeapi.strategies.core_shared import BuiltinStrategy, at, fill, part_of
from gpuledger.local.kubeapi.strategies.core_template import GRACE_PERIOD_S, default_pod

FINISHED = frozenset({"Succeeded", "Failed"})
EVICTED_AFTER_S = 300
_NODE_PROBLEMS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_GATED = "Scheduling is blocked due to non-empty scheduling gates"


class PodStrategy(BuiltinStrategy):
    """The behaviour of pods."""

    answers_deleted_object = True
    is_graceful = True

    def default(self, obj: Object) -> None:
        """Fill in the spec and the status."""
        default_pod(part_of(obj, "spec"))
        _default_status(obj.get("status") or {})

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Start as Pending, with the tolerations, service account and priority of admission."""
        spec = obj["spec"]
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            gated = {"reason": "SchedulingGated", "message": _GATED}
            set_condition(obj, {"type": "PodScheduled", "status": "False"} | gated, context.now)
        _tolerate_node_problems(spec)
        _use_service_account(spec)
        _prioritise(spec)

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Keep what the endpoint does not write; a status keeps the class of service."""
        if subresource == ephemeral_containers.SUBRESOURCE:
            ephemeral_containers.with_new_containers(obj, old)
            return
        super().prepare_for_update(obj, old, subresource, context)
        fill(obj["spec"], {name: old["spec"][name] for name in ("priority", "preemptionPolicy") if name in old["spec"]})
        if subresource == "status":
            service = at(old, "status").get("qosClass") or qos_class(obj["spec"])
            fill(part_of(obj, "status"), {"qosClass": service})
        else:
            _tolerate_node_problems(obj["spec"])

    def validate(self, obj: Object) -> list[Cause]:
        """Everything wrong with a new pod."""
        return [*pod_causes(obj), *ephemeral_containers.creation_causes(obj)]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """Forbidden changes."""
        if subresource == "status":
            return [*_status_causes(obj, old)]
        if subresource == ephemeral_containers.SUBRESOURCE:
            return [*ephemeral_containers.update_causes(obj, old)]
        return [*update_causes(obj, old)] or [*pod_causes(obj, updating=True)]

    def spec_changed(self, obj: Object, old: Object) -> bool:
        """Whether the spec differs."""
        return bool(obj.get("spec") != old.get("spec"))

    def grace_s(self, obj: Object, requested: int | None) -> int:
        """The grace period: 0 if the pod never ran or has finished, else as requested or as in its spec."""
        spec, status = at(obj, "spec"), at(obj, "status")
        if not spec.get("nodeName") or status.get("phase") in FINISHED:
            return 0
        period: int = spec.get("terminationGracePeriodSeconds", GRACE_PERIOD_S) if requested is None else requested
        return 1 if period < 0 else period

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """The values for field selectors of pods."""
        spec, status = at(obj, "spec"), at(obj, "status")
        addresses = status.get("podIPs") or [{"ip": status.get("podIP") or ""}]
        return {
            "spec.nodeName": spec.get("nodeName") or "",
            "spec.restartPolicy": spec.get("restartPolicy") or "",
            "spec.schedulerName": spec.get("schedulerName") or "",
            "spec.serviceAccountName": spec.get("serviceAccountName") or "",
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase") or "",
            "status.podIP": addresses[0].get("ip") or "",
            "status.podIPs": addresses[0].get("ip") or "",
            "status.nominatedNodeName": status.get("nominatedNodeName") or "",
        }


def bound(pod: Object, binding: Object, now: datetime) -> Object:
    """The pod as `POST .../binding` leaves it (a new object; generation stays).

    Raises ApiError: 400 for another name, 500 without a node, 409 for another uid and where the pod is deleted, bound
    or gated.
    """
    metadata = pod["metadata"]
    name, binding_meta, target = metadata["name"], at(binding, "metadata"), at(binding, "target")
    if binding_meta.get("name") not in {None, "", name}:
        raise bad_request("name in URL does not match name in Binding object")
    if target.get("kind") not in {None, "", "Node"}:
        raise internal(f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        raise internal("target.name: Required value")
    expected, actual = binding_meta.get("uid"), metadata.get("uid")
    if expected and expected != actual:
        text = f"Precondition failed: UID in precondition: {expected}, UID in object meta: {actual}"
        raise conflict("", "pods", name, text)
    if problem := _unbindable(pod):
        raise conflict("", "pods/binding", name, problem)
    return _on_node(pod, binding_meta, target["name"], now)


def is_ready(pod: Object) -> bool:
    """Whether the pod's condition Ready is True."""
    conditions = at(pod, "status").get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def set_condition(pod: Object, condition: Object, now: datetime) -> None:
    """Replace the condition of this type in place; the transition time is now if the status changes."""
    conditions = at(pod, "status").get("conditions") or []
    old: Object = next((one for one in conditions if one.get("type") == condition["type"]), {})
    same = old.get("status") == condition["status"]
    times = {"lastProbeTime": None, "lastTransitionTime": old.get("lastTransitionTime") if same else timestamp(now)}
    new = condition | times
    kept = [new if one is old else one for one in conditions]
    pod["status"] = at(pod, "status") | {"conditions": kept if old else [*conditions, new]}


def _unbindable(pod: Object) -> str:
    name, spec = pod["metadata"]["name"], pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    return f"pod {name} has non-empty .spec.schedulingGates" if spec.get("schedulingGates") else ""


def _on_node(pod: Object, binding_meta: Object, node: str, now: datetime) -> Object:
    metadata = dict(pod["metadata"])
    if binding_meta.get("annotations"):
        metadata["annotations"] = (metadata.get("annotations") or {}) | binding_meta["annotations"]
    if binding_meta.get("labels"):
        metadata["labels"] = binding_meta["labels"] | (metadata.get("labels") or {})
    status = {key: value for key, value in at(pod, "status").items() if key != "nominatedNodeName"}
    moved = pod | {"metadata": metadata, "spec": pod["spec"] | {"nodeName": node}, "status": status}
    set_condition(moved, {"type": "PodScheduled", "status": "True"}, now)
    return moved


def _default_status(status: Object) -> None:
    for condition in status.get("conditions") or ():
        for name in ("lastProbeTime", "lastTransitionTime"):
            condition.setdefault(name, None)
    addresses = status.get("podIPs") or []
    if status.get("podIP") and addresses[:1] != [{"ip": status["podIP"]}]:
        status["podIPs"] = [{"ip": status["podIP"]}]
    elif addresses:
        status["podIP"] = addresses[0].get("ip", "")


def _tolerate_node_problems(spec: Object) -> None:
    tolerations = [*(spec.get("tolerations") or ())]
    for key in _NODE_PROBLEMS:
        if not any(_tolerates(one, key) for one in tolerations):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": EVICTED_AFTER_S}
            tolerations.append(added)
    spec["tolerations"] = tolerations


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key") in {None, "", key} and toleration.get("effect") in {None, "", "NoExecute"}


def _use_service_account(spec: Object) -> None:
    name = spec.get("serviceAccountName") or "default"
    spec |= {"serviceAccountName": name, "serviceAccount": name}


def _prioritise(spec: Object) -> None:
    if not spec.get("priorityClassName"):
        fill(spec, {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})


def _status_causes(obj: Object, old: Object) -> list[Cause]:
    status, before = at(obj, "status"), at(old, "status")
    if before.get("qosClass") and status.get("qosClass") != before["qosClass"]:
        return [forbidden("status.qosClass", "the class of service of a pod does not change")]
    return []
