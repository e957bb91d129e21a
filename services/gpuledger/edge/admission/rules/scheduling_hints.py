"""Adds scheduling hints to a pod, so that the scheduler places it where its pool's devices are. Pure, deterministic.

Hints only add, and added a second time they change nothing. What the user set about the same matter stays. A pod whose
own placement contradicts the pool, so that it could never run, is denied.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from gpuledger.api.kinds import GPU_GROUP
from gpuledger.api.pool_spec import BIN_PACK, SPREAD
from gpuledger.domain.dra.objects import NodeExpression
from gpuledger.domain.inventory.state import ModuleSettings
from gpuledger.edge.admission.cache import CachedPool
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.admission.rules.requirements import contradiction, expression, in_words, of_expressions, of_labels
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.webhooks.serving.review import Object
from gpuledger.events.pool import PoolTaint

POOL_LABEL: Final = f"{GPU_GROUP}/pool"
"""On pods: the name of the pool that they use, which is unique in the cluster."""

_PACKING_WEIGHT: Final = 100
_SKEW_MAX: Final = 1
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def with_hints(pod: Object, pool: CachedPool, settings: ModuleSettings) -> dict[str, Any]:
    """A copy of the pod with its hints.

    Raises:
        DenialError: the pod has another pool's label, or can run on none of the pool's nodes.
    """
    label = mapping(pod, "metadata", "labels").get(POOL_LABEL, pool.ref.name)
    if label != pool.ref.name:
        message = f"The pod asks for {pool.ref.name}, but its label {POOL_LABEL} says {label!r}. Remove the label."
        raise DenialError("PoolLabelConflict", message)
    _check_placement(pod, pool)
    changed: dict[str, Any] = deepcopy(dict(pod))
    _member(_member(changed, "metadata"), "labels")[POOL_LABEL] = pool.ref.name
    spec = _member(changed, "spec")
    _add_tolerations(spec, pool)
    _require_nodes(spec, pool.spec.nodes)
    _add_strategy(spec, pool, settings)
    return changed


def tolerates(toleration: Object, taint: PoolTaint) -> bool:
    """Whether a toleration is for a taint, as the scheduler reads it."""
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if operator == "Exists":
        return key in ("", taint.key)
    return operator == "Equal" and key == taint.key and (toleration.get("value") or "") == (taint.value or "")


def _check_placement(pod: Object, pool: CachedPool) -> None:
    """Deny a pod whose own placement excludes every node that the pool's selector could select.

    A pod that contradicts itself passes: it could not run without the pool either, and the scheduler says so.
    """
    nodes, given = pool.spec.nodes, of_labels(mapping(pod, "spec", "nodeSelector"))
    terms = [of_expressions(mapping(term)) for term in _required_terms(mapping(pod, "spec")) if _selects(mapping(term))]
    possible = [term for term in terms or [[]] if contradiction([*given, *term]) is None]
    found = [contradiction([*nodes, *given, *term]) for term in possible]
    if not found or None in found:
        return
    own = f"its nodeSelector or node affinity says otherwise about {found[0]}"
    message = f"{pool.ref} uses nodes with {'; '.join(map(in_words, nodes))}, but the pod can run on none: {own}."
    raise DenialError("PlacementConflict", f"{message} Remove that from the pod, or ask for another pool.")


def _required_terms(spec: Object) -> list[Any]:
    return items(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")


def _selects(term: Object) -> bool:
    """Whether a term selects any node; one without expressions selects none, and must not begin to."""
    return bool(items(term, "matchExpressions") or items(term, "matchFields"))


def _add_tolerations(spec: dict[str, Any], pool: CachedPool) -> None:
    for taint in pool.spec.definition.taints if pool.spec.definition.taints_enabled else ():
        if not any(tolerates(mapping(one), taint) for one in items(spec, "tolerations")):
            how = {"operator": "Exists"} if taint.value is None else {"operator": "Equal", "value": taint.value}
            _list(spec, "tolerations").append({"key": taint.key, **how, "effect": taint.effect})


def _require_nodes(spec: dict[str, Any], nodes: tuple[NodeExpression, ...]) -> None:
    """Add the pool's requirements to each of the user's terms, which are alternatives."""
    if not nodes:
        return
    terms = _list(_member(spec, "affinity", "nodeAffinity", _REQUIRED), "nodeSelectorTerms")
    if not terms:
        terms.append({"matchExpressions": [expression(one) for one in nodes]})
    for term in terms:
        if _selects(term):
            given = of_expressions(term)
            missing = [expression(one) for one in nodes if one not in given]
            if missing:
                _list(term, "matchExpressions").extend(missing)


def _add_strategy(spec: dict[str, Any], pool: CachedPool, settings: ModuleSettings) -> None:
    strategy = pool.spec.definition.strategy or settings.scheduling_strategy
    key = pool.spec.definition.topology_key or settings.topology_key
    selector = {"matchLabels": {POOL_LABEL: pool.ref.name}}
    if strategy == SPREAD:
        _spread(spec, key, selector)
    elif strategy == BIN_PACK:
        _pack(spec, key, selector, in_all_namespaces=not pool.ref.namespace)


def _spread(spec: dict[str, Any], key: str, selector: Object) -> None:
    """Leave a pod alone that spreads over that key already; Kubernetes refuses two such constraints."""
    if any(mapping(one).get("topologyKey") == key for one in items(spec, "topologySpreadConstraints")):
        return
    constraint = {"maxSkew": _SKEW_MAX, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
    _list(spec, "topologySpreadConstraints").append({**constraint, "labelSelector": selector})


def _pack(spec: dict[str, Any], key: str, selector: Object, *, in_all_namespaces: bool) -> None:
    term: dict[str, Any] = {"labelSelector": selector, "topologyKey": key}
    if in_all_namespaces:
        term["namespaceSelector"] = {}
    preferred = items(spec, "affinity", "podAffinity", _PREFERRED)
    if any(_is_about(mapping(one, "podAffinityTerm"), key, selector) for one in preferred):
        return
    terms = _list(_member(spec, "affinity", "podAffinity"), _PREFERRED)
    terms.append({"weight": _PACKING_WEIGHT, "podAffinityTerm": term})


def _is_about(term: Object, key: str, selector: Object) -> bool:
    return term.get("topologyKey") == key and mapping(term, "labelSelector", "matchLabels") == selector["matchLabels"]


def _member(holder: dict[str, Any], *path: str) -> dict[str, Any]:
    """The object at a path, created if there is none."""
    for name in path:
        if not isinstance(holder.get(name), Mapping):
            holder[name] = {}
        holder = holder[name]
    return holder


def _list(holder: dict[str, Any], name: str) -> list[Any]:
    """The list of that name, created if there is none."""
    if not isinstance(holder.get(name), list):
        holder[name] = []
    found: list[Any] = holder[name]
    return found
