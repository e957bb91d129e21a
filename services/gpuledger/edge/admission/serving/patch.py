"""JSON Patches that only ever add. Pure.

A patch that would change or remove anything of the user's cannot be written here; asking for one is an error.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuledger.edge.admission.errors import PatchError
from gpuledger.edge.admission.serving.review import Object

_ABSENT = object()


def additions(before: object, after: object, path: str = "") -> Iterator[Object]:
    """The operations that make `after` of `before`; a null counts as nothing there.

    Raises:
        PatchError: `after` lacks something of `before`, or has it otherwise.
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
        place, known = f"{path}/{_escaped(name)}", before.get(name, _ABSENT)
        if known is _ABSENT or (known is None and value is not None):
            yield {"op": "add", "path": place, "value": value}
        else:
            yield from additions(known, value, place)


def _items(before: list[Any], after: list[Any], path: str) -> Iterator[Object]:
    if len(after) < len(before):
        raise PatchError(f"A hint would remove an item of {path}, which the user set.")
    for index, known in enumerate(before):
        yield from additions(known, after[index], f"{path}/{index}")
    for value in after[len(before) :]:
        yield {"op": "add", "path": f"{path}/-", "value": value}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
