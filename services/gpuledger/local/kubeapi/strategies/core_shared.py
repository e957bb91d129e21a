"""The base of built-in types with a status endpoint, and helpers that their strategies share."""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid, not_supported, required
from gpuledger.edge.kube.schema.object_names import label_value_problem, qualified_name_problem
from gpuledger.local.kubeapi.metadata import validate_labels
from gpuledger.local.kubeapi.resources import Context, Strategy
from gpuledger.local.kubeapi.selectors import LabelMatcher

OUTSIDE_SPEC = frozenset({"metadata", "status", "kind", "apiVersion"})
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class BuiltinStrategy(Strategy):
    """A type whose status is written only through `/status`, and everything else through the object."""

    status_on_create: Mapping[str, Any] | None = None
    """The status of a new object; None leaves it out."""

    keeps_status_on_create = False

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Replace the status by the initial one."""
        if not self.keeps_status_on_create:
            obj.pop("status", None)
        if self.status_on_create is not None:
            obj["status"] = deepcopy(dict(self.status_on_create)) | (obj.get("status") or {})

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Keep what this endpoint does not write."""
        if subresource == "status":
            keep(obj, old, (name for name in {*obj, *old} if name not in OUTSIDE_SPEC))
        else:
            keep(obj, old, ("status",))


def keep(obj: Object, old: Object, names: Iterable[str]) -> None:
    """Put fields back to what they were."""
    for name in tuple(names):
        if name in old:
            obj[name] = old[name]
        else:
            obj.pop(name, None)


def at(obj: Mapping[str, Any], *names: str) -> Object:
    """The map at a path; empty if there is none."""
    found: Any = obj
    for name in names:
        found = (found or {}).get(name)
    return found or {}


def part_of(obj: Object, name: str) -> Object:
    """The map under a name, to change in place; created if missing or null."""
    if obj.get(name) is None:
        obj[name] = {}
    found: Object = obj[name]
    return found


def fill(obj: Object, values: Mapping[str, Any]) -> None:
    """Set what is missing, null or an empty string."""
    for name, value in values.items():
        if obj.get(name) is None or obj[name] == "":
            obj[name] = value


def one_of(value: object, supported: Iterable[str], field: str) -> Iterator[Cause]:
    """Refuse a value that is missing or not supported."""
    if value is None or value == "":
        yield required(field)
    elif value not in (choices := tuple(supported)):
        yield not_supported(field, value, choices)


def immutable(
    obj: Mapping[str, Any], old: Mapping[str, Any], names: Iterable[str], prefix: str = ""
) -> Iterator[Cause]:
    """Refuse changes of immutable fields."""
    for name in names:
        if obj.get(name) != old.get(name):
            yield invalid(f"{prefix}{name}", obj.get(name), "field is immutable")


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a LabelSelector object matches labels. None matches nothing, an empty one everything."""
    return selector is not None and LabelMatcher.of(selector).matches(labels or {})


def selector_causes(selector: Mapping[str, Any] | None, field: str) -> Iterator[Cause]:
    """Everything wrong with a LabelSelector object."""
    yield from validate_labels((selector or {}).get("matchLabels"), f"{field}.matchLabels")
    for index, one in enumerate((selector or {}).get("matchExpressions") or ()):
        yield from _expression_causes(one, f"{field}.matchExpressions[{index}]")


def _expression_causes(expression: Mapping[str, Any], field: str) -> Iterator[Cause]:
    operator, values = expression.get("operator"), expression.get("values") or ()
    if operator in {"In", "NotIn"} and not values:
        yield required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in {"Exists", "DoesNotExist"} and values:
        yield Cause("FieldValueForbidden", "Forbidden: may not be specified", f"{field}.values")
    elif operator not in OPERATORS:
        yield invalid(f"{field}.operator", operator or "", "not a valid selector operator")
    if problem := qualified_name_problem(str(expression.get("key") or "")):
        yield invalid(f"{field}.key", expression.get("key") or "", problem)
    for index, value in enumerate(values):
        if problem := label_value_problem(str(value)):
            yield invalid(f"{field}.values[{index}]", value, problem)
