"""What an object shows of an outcome: a condition with a status, or a field with one of some values. Pure."""

from collections.abc import Mapping
from typing import Any

from gpuledger.events.remediation import OutcomeSign


def shows(obj: Mapping[str, Any], sign: OutcomeSign | None) -> bool:
    """Whether an object shows the sign."""
    if sign is None:
        return False
    if sign.condition is not None:
        found = _condition(obj, sign.condition)
        return found is not None and found.get("status") == sign.status
    value = _field(obj, sign.path or "")
    return value is not None and _text(value) in sign.values


def message_of(obj: Mapping[str, Any], sign: OutcomeSign | None) -> str:
    """What the object says about it: the reason and the message of the condition, or the value of the field."""
    if sign is None:
        return ""
    if sign.condition is None:
        return f"{sign.path} is {_text(_field(obj, sign.path or ''))}"
    found = _condition(obj, sign.condition) or {}
    return ": ".join(str(found[key]) for key in ("reason", "message") if found.get(key))


def _condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    conditions = _field(obj, "status.conditions")
    listed = conditions if isinstance(conditions, list) else []
    return next((one for one in listed if isinstance(one, Mapping) and one.get("type") == kind), None)


def _field(obj: Any, path: str) -> Any:  # noqa: ANN401 - any JSON
    for part in path.split("."):
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(part)
    return obj


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
