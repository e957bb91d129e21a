"""What the conditions in an object's status lack of what Kubernetes' metav1.Condition has."""

from collections.abc import Iterator
from typing import Any

FIELDS = ("type", "status", "reason", "message", "lastTransitionTime", "observedGeneration")


def conditions_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every condition in an object or a part of one, wherever it is."""
    if isinstance(value, dict):
        yield from value.get("conditions") or ()
        for one in value.values():
            yield from conditions_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from conditions_in(one)


def lacking(value: Any) -> list[str]:
    """The fields that are missing or empty, as `<type>.<field>`."""
    return [f"{one.get('type')}.{field}" for one in conditions_in(value) for field in FIELDS if not one.get(field)]
