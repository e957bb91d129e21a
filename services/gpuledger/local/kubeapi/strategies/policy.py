"""PodDisruptionBudgets: their status, and whether an eviction is allowed. Pure.

The caller deletes the pod and stores the budget, or does neither in a dry run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.errors import ApiError, bad_request, denied, internal
from gpuledger.local.kubeapi.resources import Context, timestamp
from gpuledger.local.kubeapi.strategies.core_shared import (
    BuiltinStrategy,
    at,
    one_of,
    part_of,
    selector_causes,
    selects,
)
from gpuledger.local.kubeapi.strategies.pods import FINISHED, is_ready, set_condition

RETRY_AFTER_S = 10
DISRUPTED_PODS_MAX = 2000
DISRUPTION_TIMEOUT = timedelta(minutes=2)
EVICTION_POLICIES = ("IfHealthyBudget", "AlwaysAllow")
GROUP, PLURAL = "policy", "poddisruptionbudgets"
_PERCENT = re.compile(r"([0-9]+)%")
_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."
_COUNTS = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


class Eviction(NamedTuple):
    """The result of an eviction: the pod to delete, with its reason, and the budget to store, if any."""

    pod: Object
    budget: Object | None


class PdbStrategy(BuiltinStrategy):
    """The behaviour of pod disruption budgets."""

    updates_unconditionally = False
    status_on_create = _COUNTS

    def default(self, obj: Object) -> None:
        """Fill in the counts of a status."""
        if obj.get("status"):
            obj["status"] = _COUNTS | obj["status"]

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Start without any allowed disruption."""
        part_of(obj, "spec")
        super().prepare_for_create(obj, context)

    def validate(self, obj: Object) -> list[Cause]:
        """Everything wrong with a budget."""
        spec = at(obj, "spec")
        causes = [*selector_causes(spec.get("selector"), "spec.selector")]
        given = [name for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None]
        if len(given) > 1:
            causes.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
        for name in given:
            causes += count_causes(spec[name], f"spec.{name}")
        if policy := spec.get("unhealthyPodEvictionPolicy"):
            causes += one_of(policy, EVICTION_POLICIES, "spec.unhealthyPodEvictionPolicy")
        return causes


def count_causes(value: int | str, field: str) -> Iterator[Cause]:
    """Everything wrong with a number of pods or a percentage of them."""
    if isinstance(value, str):
        found = _PERCENT.fullmatch(value)
        if not found:
            yield invalid(field, value, "must be an integer or percentage (e.g '5%')")
        elif int(found[1]) > 100:
            yield invalid(field, value, "must not be greater than 100%")
    elif value < 0:
        yield invalid(field, value, "must be greater than or equal to 0")


def budget_status(pdb: Object, pods: Iterable[Object], now: datetime) -> Object:
    """The status that the disruption controller gives a budget; `pods` are those of its namespace."""
    selector = at(pdb, "spec").get("selector")
    chosen = [pod for pod in pods if selects(selector, pod["metadata"].get("labels"))]
    disrupted = _still_disrupted(pdb, chosen, now)
    expected, desired = len(chosen), _desired(pdb, len(chosen))
    healthy = sum(_is_healthy(pod, disrupted) for pod in chosen)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    counts = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired}
    status = at(pdb, "status") | counts | {"expectedPods": expected}
    status.pop("disruptedPods", None)
    if disrupted:
        status["disruptedPods"] = disrupted
    if generation := pdb["metadata"].get("generation"):
        status["observedGeneration"] = generation
    status["conditions"] = _conditions(pdb, status, allowed, now)
    return status


def evicted(pod: Object, eviction: Object, budgets: Iterable[Object], now: datetime) -> Eviction:
    """The result of `POST .../eviction`, given the budgets of the pod's namespace.

    Raises ApiError: 400 for another name, 429 where a budget blocks (in a dry run too), 500 where two budgets apply,
    403 where a budget is broken.
    """
    name = pod["metadata"]["name"]
    if at(eviction, "metadata").get("name") not in {None, "", name}:
        raise bad_request("name in URL does not match name in Eviction object")
    budget = None if _needs_no_budget(pod) else _budget_of(pod, budgets)
    if budget is not None:
        budget = None if _unhealthy_may_go(pod, budget) else _spent(budget, name, now)
    marked = dict(pod)
    why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    set_condition(marked, {"type": "DisruptionTarget", "status": "True"} | why, now)
    return Eviction(marked, budget)


def _needs_no_budget(pod: Object) -> bool:
    ended = at(pod, "status").get("phase") in {*FINISHED, "Pending"}
    return ended or bool(pod["metadata"].get("deletionTimestamp"))


def _budget_of(pod: Object, budgets: Iterable[Object]) -> Object | None:
    labels = pod["metadata"].get("labels")
    matching = [one for one in budgets if selects(at(one, "spec").get("selector"), labels)]
    if len(matching) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise internal(text)
    return matching[0] if matching else None


def _unhealthy_may_go(pod: Object, budget: Object) -> bool:
    if is_ready(pod):
        return False
    if at(budget, "spec").get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = at(budget, "status")
    desired: int = status.get("desiredHealthy") or 0
    return desired > 0 and (status.get("currentHealthy") or 0) >= desired


def _spent(budget: Object, pod: str, now: datetime) -> Object:
    name, status = budget["metadata"]["name"], at(budget, "status")
    if (status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
        text = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(text, retry_after_s=RETRY_AFTER_S)
    allowed: int = status.get("disruptionsAllowed") or 0
    if allowed < 0:
        raise denied(GROUP, PLURAL, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > DISRUPTED_PODS_MAX:
        raise denied(GROUP, PLURAL, name, "DisruptedPods map too big - too many evictions not confirmed")
    if allowed == 0:
        counts = f"needs {status.get('desiredHealthy') or 0} healthy pods and has {status.get('currentHealthy') or 0}"
        raise _too_many(f"The disruption budget {name} {counts} currently")
    disrupted = (status.get("disruptedPods") or {}) | {pod: timestamp(now)}
    changed = status | {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    return budget | {"status": changed | {"conditions": _conditions(budget, status, allowed - 1, now)}}


def _too_many(message: str, retry_after_s: int | None = None) -> ApiError:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    if retry_after_s is not None:
        details["retryAfterSeconds"] = retry_after_s
    return ApiError(429, "TooManyRequests", _BLOCKED, details, retry_after_s=retry_after_s)


def _desired(pdb: Object, count: int) -> int:
    """The number of pods that must stay healthy, of `count`."""
    spec = at(pdb, "spec")
    if spec.get("maxUnavailable") is not None:
        return max(0, count - _share(spec["maxUnavailable"], count))
    return _share(spec.get("minAvailable") or 0, count)


def _share(value: int | str, total: int) -> int:
    if isinstance(value, int):
        return value
    found = _PERCENT.fullmatch(value)
    return -(-int(found[1]) * total // 100) if found else 0


def _is_healthy(pod: Object, disrupted: Mapping[str, str]) -> bool:
    metadata = pod["metadata"]
    return not metadata.get("deletionTimestamp") and metadata["name"] not in disrupted and is_ready(pod)


def _still_disrupted(pdb: Object, pods: list[Object], now: datetime) -> dict[str, str]:
    there = {pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
    marks = at(pdb, "status", "disruptedPods").items()
    return {name: time for name, time in marks if name in there and now - _read(time) < DISRUPTION_TIMEOUT}


def _read(time: str) -> datetime:
    return datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _conditions(pdb: Object, status: Object, allowed: int, now: datetime) -> list[Object]:
    conditions = at(pdb, "status").get("conditions") or []
    old: Object = next((one for one in conditions if one.get("type") == "DisruptionAllowed"), {})
    word, reason = ("True", "SufficientPods") if allowed > 0 else ("False", "InsufficientPods")
    since = old.get("lastTransitionTime") if old.get("status") == word else timestamp(now)
    new = {"type": "DisruptionAllowed", "status": word, "reason": reason, "message": "", "lastTransitionTime": since}
    new["observedGeneration"] = status.get("observedGeneration") or 0
    kept = [new if one is old else one for one in conditions]
    return kept if old else [*conditions, new]
