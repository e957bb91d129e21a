"""Decides which fields of a pod may change: images, deadlines, tolerations, and placement while gates hold it back."""

from collections.abc import Iterator

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden, invalid
from gpuledger.local.kubeapi.strategies.core_shared import at

_ALLOWED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_ALWAYS = frozenset({"activeDeadlineSeconds", "tolerations", "schedulingGates", "serviceAccount"})
_WHILE_GATED = frozenset({"nodeSelector", "affinity"})


def update_causes(pod: Object, old: Object) -> list[Cause]:
    """Forbidden differences from `old`."""
    spec, before = at(pod, "spec"), at(old, "spec")
    causes = [*_toleration_causes(spec, before), *_gate_causes(spec, before), *_node_selector_causes(spec, before)]
    free = _ALWAYS | (_WHILE_GATED if before.get("schedulingGates") else frozenset())
    if not causes and _fixed(spec, free) != _fixed(before, free):
        causes.append(forbidden("spec", _ALLOWED))
    return causes


def _toleration_causes(spec: Object, before: Object) -> Iterator[Cause]:
    kept = [_timeless(one) for one in spec.get("tolerations") or ()]
    if any(_timeless(one) not in kept for one in before.get("tolerations") or ()):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")


def _timeless(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _gate_causes(spec: Object, before: Object) -> Iterator[Cause]:
    gates_before = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in gates_before:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", text)


def _node_selector_causes(spec: Object, before: Object) -> Iterator[Cause]:
    new, old = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if before.get("schedulingGates") and any(new.get(key) != value for key, value in old.items()):
        text = "only additions are allowed to spec.nodeSelector (no mutations or deletions)"
        yield invalid("spec.nodeSelector", new, text)


def _fixed(spec: Object, free: frozenset[str]) -> Object:
    fixed = {name: value for name, value in spec.items() if name not in free}
    for name in ("containers", "initContainers"):
        if name in fixed:
            fixed[name] = [{key: value for key, value in one.items() if key != "image"} for one in fixed[name]]
    return fixed
