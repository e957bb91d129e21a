"""Nodes: defaults, taints, and which fields may change.

A node has no generation, and no controller of the server removes its not-ready taint.
"""

from collections.abc import Iterator, Mapping

from gpuledger.edge.kube.schema.causes import Cause, Object, duplicate, forbidden, invalid
from gpuledger.edge.kube.schema.object_names import label_value_problem, qualified_name_problem
from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.core_shared import BuiltinStrategy, at, fill, one_of, part_of

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_ONCE = {
    "podCIDR": 'node updates may not change podCIDR except from "" to valid',
    "podCIDRs": 'node updates may not change podCIDR except from "" to valid',
    "providerID": 'node updates may not change providerID except from "" to valid',
}
_CHANGEABLE = frozenset({"taints", "unschedulable", "configSource", *_ONCE})


class NodeStrategy(BuiltinStrategy):
    """The behaviour of nodes."""

    has_generation = False
    keeps_status_on_create = True

    def default(self, obj: Object) -> None:
        """Fill in the status; allocatable is the capacity by default."""
        spec = part_of(obj, "spec")
        ranges = spec.get("podCIDRs") or []
        if spec.get("podCIDR") and ranges[:1] != [spec["podCIDR"]]:
            spec["podCIDRs"] = [spec["podCIDR"]]
        elif ranges:
            spec["podCIDR"] = ranges[0]
        _default_status(part_of(obj, "status"))

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """A new node is not ready."""
        super().prepare_for_create(obj, context)
        taints = obj["spec"].get("taints") or []
        if not any(_same_taint(one, NOT_READY) for one in taints):
            obj["spec"]["taints"] = [*taints, dict(NOT_READY)]

    def validate(self, obj: Object) -> list[Cause]:
        """Everything wrong with a node."""
        return [*_taint_list_causes(at(obj, "spec").get("taints") or [])]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """Everything wrong with a node, and forbidden changes."""
        return [*self.validate(obj), *_change_causes(at(obj, "spec"), at(old, "spec"))]

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """The values for field selectors of nodes."""
        return {"spec.unschedulable": "true" if at(obj, "spec").get("unschedulable") else "false"}


def _default_status(status: Object) -> None:
    if status.get("capacity") and status.get("allocatable") is None:
        status["allocatable"] = dict(status["capacity"])
    fill(part_of(status, "nodeInfo"), dict.fromkeys(_INFO, ""))
    fill(part_of(part_of(status, "daemonEndpoints"), "kubeletEndpoint"), {"Port": 0})
    for condition in status.get("conditions") or ():
        for name in ("lastHeartbeatTime", "lastTransitionTime"):
            condition.setdefault(name, None)


def _same_taint(one: Object, other: Object) -> bool:
    return (one.get("key"), one.get("effect")) == (other.get("key"), other.get("effect"))


def _taint_list_causes(taints: list[Object]) -> Iterator[Cause]:
    for index, taint in enumerate(taints):
        field = f"metadata.taints[{index}]"
        yield from _taint_causes(taint, field)
        if any(_same_taint(taint, other) for other in taints[:index]):
            yield duplicate(field, f"{taint.get('key')}:{taint.get('effect')}")


def _taint_causes(taint: Object, field: str) -> Iterator[Cause]:
    key, value = taint.get("key") or "", taint.get("value") or ""
    if problem := qualified_name_problem(key):
        yield invalid(f"{field}.key", key, problem)
    if problem := label_value_problem(value):
        yield invalid(f"{field}.value", value, problem)
    yield from one_of(taint.get("effect"), TAINT_EFFECTS, f"{field}.effect")


def _change_causes(spec: Object, before: Object) -> Iterator[Cause]:
    for name, text in _ONCE.items():
        if before.get(name) and spec.get(name) != before[name]:
            yield forbidden(f"spec.{name}", text)
    for name in sorted({*spec, *before} - _CHANGEABLE):
        if spec.get(name) != before.get(name):
            text = "node updates may only change labels, taints, or capacity"
            yield forbidden(f"spec.{name}", text)
