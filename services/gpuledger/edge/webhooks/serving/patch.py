"""JSON Patches that only ever add: a patch that changes or removes what the user set is an error. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuledger.edge.webhooks.errors import PatchError
from gpuledger.edge.webhooks.serving.review import Object


def additions(before: object, after: object, path: str = "") -> Iterator[Object]:
    """The operations that turn `before` into `after`; a null counts as nothing.

    Raises:
        PatchError: `after` lacks something that `before` has, or has something else instead.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _members(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _items(before, after, path)
    elif before != after:
        raise PatchError(f"A hint would change {path or 'the object'}, which the user set.")


def _members(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[Object]:
    if lost := before.keys() - after.keys():
        raise PatchError(f"A hint would remove {path}/{min(lost)}, which the user set.")
    for name, value in after.items():
        place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in before or (before[name] is None and value is not None):
            yield {"op": "add", "path": place, "value": value}
        else:
            yield from additions(before[name], value, place)


def _items(before: list[Any], after: list[Any], path: str) -> Iterator[Object]:
    if len(after) < len(before):
        raise PatchError(f"A hint would remove an item of {path}, which the user set.")
    for index, value in enumerate(before):
        yield from additions(value, after[index], f"{path}/{index}")
    for value in after[len(before) :]:
        yield {"op": "add", "path": f"{path}/-", "value": value}
