"""Reads parts of unvalidated Kubernetes objects: a part that is absent, or of another type, is empty. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

NOTHING: Final[Mapping[str, Any]] = {}


def mapping(value: object, *path: str) -> Mapping[str, Any]:
    """The mapping at a path; an empty one where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else NOTHING


def items(value: object, *path: str) -> list[Any]:
    """The list at a path of at least one key; an empty one where there is none."""
    found = mapping(value, *path[:-1]).get(path[-1])
    return found if isinstance(found, list) else []


def time_of(text: object) -> datetime | None:
    """A time of Kubernetes; None for everything else."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if found is None or found.tzinfo is None else found
