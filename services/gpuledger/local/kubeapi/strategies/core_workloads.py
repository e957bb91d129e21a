"""Deployments, replica sets, stateful sets and daemon sets as objects. No controller is here that would make pods."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid, not_supported, required
from gpuledger.local.kubeapi.metadata import validate_labels
from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.core_podspec import pod_spec_causes
from gpuledger.local.kubeapi.strategies.core_quantities import check_quantities
from gpuledger.local.kubeapi.strategies.core_shared import (
    BuiltinStrategy,
    at,
    at_least,
    fill,
    immutable,
    part_of,
    selector_causes,
    selects,
)
from gpuledger.local.kubeapi.strategies.core_template import default_pod_spec, quantity_maps

REVISIONS_KEPT = 10
PROGRESS_DEADLINE_S = 600
SPREAD = "25%"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_COUNTS = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")


class WorkloadStrategy(BuiltinStrategy):
    """What the four have in common: a selector, a template, and pods that restart always."""

    kind = ""
    defaults: Mapping[str, Any] = {}
    status_on_create: Mapping[str, Any] | None = {}

    def decode(self, body: Object) -> None:
        """Refuse quantities that are none (400)."""
        check_quantities(quantity_maps(at(body, "spec", "template", "spec")), self.kind, "v1")

    def default(self, obj: Object) -> None:
        """Fill in the spec and its template."""
        spec = part_of(obj, "spec")
        fill(spec, self.defaults)
        default_template(spec)
        super().default(obj)
        if self.status_on_create and "status" in obj:
            obj["status"] = {**self.status_on_create, **(obj["status"] or {})}

    def validate(self, obj: Object) -> list[Cause]:
        """What is wrong with a workload."""
        spec = at(obj, "spec")
        causes = [cause for name in _COUNTS for cause in at_least(spec.get(name), 0, f"spec.{name}")]
        return [*causes, *_selector_causes(spec, self.kind), *template_causes(spec, ("Always",))]

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """The selector never changes."""
        if subresource:
            return []
        return [*self.validate(obj), *immutable(at(obj, "spec"), at(old, "spec"), ("selector",), "spec.")]


class DeploymentStrategy(WorkloadStrategy):
    """The behaviour of deployments."""

    kind = "Deployment"
    defaults = {
        "replicas": 1,
        "revisionHistoryLimit": REVISIONS_KEPT,
        "progressDeadlineSeconds": PROGRESS_DEADLINE_S,
    }

    def default(self, obj: Object) -> None:
        """Roll out a quarter at a time."""
        strategy = _part(obj, "strategy", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            fill(strategy, {"rollingUpdate": {}})
            fill(strategy["rollingUpdate"], {"maxUnavailable": SPREAD, "maxSurge": SPREAD})
        super().default(obj)

    def validate(self, obj: Object) -> list[Cause]:
        """What is wrong with a deployment."""
        strategy = at(obj, "spec", "strategy")
        causes = super().validate(obj)
        if strategy.get("type") not in {"Recreate", "RollingUpdate"}:
            causes.append(not_supported("spec.strategy.type", strategy.get("type"), ("Recreate", "RollingUpdate")))
        elif strategy["type"] == "Recreate" and strategy.get("rollingUpdate") is not None:
            text = "Forbidden: may not be specified when strategy `type` is 'Recreate'"
            causes.append(Cause("FieldValueForbidden", text, "spec.strategy.rollingUpdate"))
        return causes

    def spec_changed(self, obj: Object, old: Object) -> bool:
        """A deployment's annotations count as its spec: they travel to its replica sets."""
        annotations, before = at(obj, "metadata", "annotations"), at(old, "metadata", "annotations")
        return super().spec_changed(obj, old) or annotations != before


class ReplicaSetStrategy(WorkloadStrategy):
    """The behaviour of replica sets."""

    kind = "ReplicaSet"
    defaults = {"replicas": 1}
    status_on_create = {"replicas": 0}

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """What field selectors of replica sets see."""
        return {"status.replicas": str(at(obj, "status").get("replicas") or 0)}

    def field_names(self) -> frozenset[str]:
        """Which names field selectors of replica sets may use."""
        return frozenset({"status.replicas"})


class StatefulSetStrategy(WorkloadStrategy):
    """The behaviour of stateful sets."""

    kind = "StatefulSet"
    defaults = {"replicas": 1, "revisionHistoryLimit": REVISIONS_KEPT, "podManagementPolicy": "OrderedReady"}
    status_on_create = {"replicas": 0, "availableReplicas": 0}

    def default(self, obj: Object) -> None:
        """Update all, one after another, and keep the volumes."""
        strategy = _part(obj, "updateStrategy", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            fill(strategy, {"rollingUpdate": {}})
            fill(strategy["rollingUpdate"], {"partition": 0})
        fill(obj["spec"], {"persistentVolumeClaimRetentionPolicy": {}})
        fill(obj["spec"]["persistentVolumeClaimRetentionPolicy"], {"whenDeleted": "Retain", "whenScaled": "Retain"})
        super().default(obj)


class DaemonSetStrategy(WorkloadStrategy):
    """The behaviour of daemon sets."""

    kind = "DaemonSet"
    defaults = {"revisionHistoryLimit": REVISIONS_KEPT}
    status_on_create = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }

    def default(self, obj: Object) -> None:
        """Update one node at a time."""
        strategy = _part(obj, "updateStrategy", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            fill(strategy, {"rollingUpdate": {}})
            fill(strategy["rollingUpdate"], {"maxUnavailable": 1, "maxSurge": 0})
        super().default(obj)

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Count the templates from 1."""
        super().prepare_for_create(obj, context)
        annotations = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = annotations | {TEMPLATE_GENERATION: "1"}

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Count a changed template."""
        super().prepare_for_update(obj, old, subresource, context)
        count = at(old, "metadata", "annotations").get(TEMPLATE_GENERATION, "1")
        changed = at(obj, "spec", "template") != at(old, "spec", "template")
        after = str(int(count) + 1) if changed and count.isdecimal() else count
        obj["metadata"]["annotations"] = (obj["metadata"].get("annotations") or {}) | {TEMPLATE_GENERATION: after}


def default_template(spec: Object) -> None:
    """Fill in the pod template of a workload's spec."""
    if spec.get("template") is None:
        spec["template"] = {}
    template = spec["template"]
    for name in ("metadata", "spec"):
        if template.get(name) is None:
            template[name] = {}
    default_pod_spec(template["spec"])


def template_causes(spec: Object, restart_policies: tuple[str, ...]) -> Iterator[Cause]:
    """What is wrong with the pod template of a workload's spec."""
    template = at(spec, "template")
    yield from validate_labels(at(template, "metadata").get("labels"), "spec.template.labels")
    yield from pod_spec_causes(at(template, "spec"), "spec.template.spec")
    policy = at(template, "spec").get("restartPolicy")
    if policy not in restart_policies:
        yield not_supported("spec.template.spec.restartPolicy", policy, restart_policies)


def _part(obj: Object, name: str, kind: str) -> Object:
    spec = part_of(obj, "spec")
    fill(spec, {name: {}})
    fill(spec[name], {"type": kind})
    found: Object = spec[name]
    return found


def _selector_causes(spec: Object, kind: str) -> Iterator[Cause]:
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        labels = at(spec, "template", "metadata").get("labels")
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
        return
    yield from selector_causes(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", selector, f"empty selector is invalid for {kind.lower()}")
    labels = at(spec, "template", "metadata").get("labels")
    if not selects(selector, labels):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
