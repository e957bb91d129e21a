"""What of a pod may change once it is there: images, deadlines, more tolerations, and more while gates hold it back."""

from collections.abc import Iterator

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden, invalid, required
from gpuledger.local.kubeapi.strategies.core_shared import at

_ALLOWED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_SELECTOR = ("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def update_causes(pod: Object, old: Object) -> list[Cause]:
    """What differs from `old` that may not."""
    spec, before = at(pod, "spec"), at(old, "spec")
    if counted := list(_count_causes(spec, before)):
        return counted
    causes = [*_image_causes(spec), *_deadline_causes(spec, before), *_toleration_causes(spec, before)]
    causes += _gate_causes(spec, before)
    if before.get("schedulingGates"):
        causes += [*_node_selector_causes(spec, before), *_affinity_causes(spec, before)]
    free = _free(spec, before)
    if not causes and _fixed(spec, free) != _fixed(before, free):
        causes.append(forbidden("spec", _ALLOWED))
    return causes


def _count_causes(spec: Object, before: Object) -> Iterator[Cause]:
    for name in ("containers", "initContainers"):
        if len(spec.get(name) or ()) != len(before.get(name) or ()):
            yield forbidden(f"spec.{name}", "pod updates may not add or remove containers")


def _image_causes(spec: Object) -> Iterator[Cause]:
    for name in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(name) or ()):
            if not container.get("image"):
                yield required(f"spec.{name}[{index}].image")


def _deadline_causes(spec: Object, before: Object) -> Iterator[Cause]:
    new, old = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    field = "spec.activeDeadlineSeconds"
    if old is None:
        return
    if new is None:
        yield invalid(field, None, "must not update from a positive integer to nil value")
    elif new > old:
        yield invalid(field, new, "must be less than or equal to previous value")


def _toleration_causes(spec: Object, before: Object) -> Iterator[Cause]:
    kept = [_timeless(one) for one in spec.get("tolerations") or ()]
    if any(_timeless(one) not in kept for one in before.get("tolerations") or ()):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")


def _timeless(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _gate_causes(spec: Object, before: Object) -> Iterator[Cause]:
    known = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", text)


def _node_selector_causes(spec: Object, before: Object) -> Iterator[Cause]:
    new, old = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if any(new.get(key) != value for key, value in old.items()):
        text = "only additions are allowed to spec.nodeSelector (no mutations or deletions)"
        yield invalid("spec.nodeSelector", new, text)


def _affinity_causes(spec: Object, before: Object) -> Iterator[Cause]:
    new, old = (at(one, "affinity", "nodeAffinity") for one in (spec, before))
    terms, known = (at(one, _SELECTOR[0]).get(_SELECTOR[1]) or [] for one in (new, old))
    if not known:
        return
    field = f"spec.affinity.nodeAffinity.{_SELECTOR[0]}.{_SELECTOR[1]}"
    if len(terms) != len(known):
        yield invalid(field, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
    elif not all(_narrows(one, other) for one, other in zip(terms, known, strict=True)):
        yield invalid(field, terms, "only additions are allowed (no mutations or deletions)")


def _narrows(term: Object, known: Object) -> bool:
    parts = ("matchExpressions", "matchFields")
    return all(one in (term.get(part) or ()) for part in parts for one in known.get(part) or ())


def _free(spec: Object, before: Object) -> frozenset[str]:
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates", "serviceAccount"}
    if before.get("schedulingGates"):
        free.add("nodeSelector")
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        free.add("terminationGracePeriodSeconds")
    return frozenset(free)


def _fixed(spec: Object, free: frozenset[str]) -> Object:
    fixed = {name: value for name, value in spec.items() if name not in free}
    for name in ("containers", "initContainers"):
        if name in fixed:
            fixed[name] = [{key: value for key, value in one.items() if key != "image"} for one in fixed[name]]
    affinity = fixed.pop("affinity", None) or {}
    if "nodeSelector" in free:
        affinity = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
    return fixed | ({"affinity": affinity} if affinity else {})
