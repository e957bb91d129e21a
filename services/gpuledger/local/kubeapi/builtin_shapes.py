"""Generates the structure of Kubernetes' built-in types from the official client's models, and reads it as shapes.

`make schemas` writes the data of the types that `builtin` serves. Serving reads the data, since importing the client
takes seconds; only a type that the data lacks comes from the client. A type is a JSON object of its fields; a field is
the name of a scalar, `@Type`, or an object that describes a list (`l`) or a map (`m`): what it holds and how it merges.
"""

import importlib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from gpuledger.edge.kube.schema.object_meta import OBJECT_META
from gpuledger.edge.kube.schema.shapes import ANYTHING, Shape
from gpuledger.local.kubeapi import builtin_overlay as overlay

PACKAGE = "gpuledger.schemas.kubernetes"
FILE = "types.json"
METADATA = "V1ObjectMeta"

_SCALARS = {
    "string": Shape("string"),
    "bool": Shape("boolean"),
    "int32": Shape("integer", format="int32"),
    "int64": Shape("integer", format="int64"),
    "number": Shape("number", format="double"),
    "byte": Shape("string", format="byte"),
    "time": Shape("string", format="date-time", nullable=True),
    "microtime": Shape("string", format="micro-time", nullable=True),
    "quantity": Shape("string", format="quantity"),
    "intstr": Shape("string", format="int-or-string", int_or_string=True),
    "any": ANYTHING,
}
_NATIVE = {"str": "string", "bool": "bool", "float": "number", "bytes": "byte", "datetime": "time", "object": "any"}
_VERSIONED = re.compile(r"([A-Z][a-z]+)?V[0-9]+((?:alpha|beta)[0-9]+)?(?=[A-Z])")


def short_name(model: str) -> str:
    """A type's name without its group and version: `PodSpec` of `V1PodSpec`."""
    return _VERSIONED.sub("", model, count=1)


def shape(model: str) -> Shape:
    """The shape of a type by its name among the client's models, such as `V1Pod` or `CoreV1Event`."""
    return _shapes().of(model)


def model_of(struct: Shape) -> str | None:
    """The built-in type of a shape; None if it is no struct of one."""
    return _shapes().names.get(id(struct.fields))


class _Shapes:
    """Shapes by type, made on first use; types may contain themselves."""

    def __init__(self, types: dict[str, Any]) -> None:
        self._types = types
        self._made: dict[str, Shape] = {METADATA: OBJECT_META}
        self.names: dict[int, str] = {id(OBJECT_META.fields): METADATA}

    def of(self, model: str) -> Shape:
        made = self._made.get(model)
        return made if made is not None else self._make(model)

    def _make(self, model: str) -> Shape:
        described = self._types[model] if model in self._types else _type(model)
        fields: dict[str, Shape] = {}
        made = Shape("object", fields=fields, atomic=short_name(model) in overlay.ATOMIC_TYPES)
        self._made[model] = made
        self.names[id(fields)] = model
        fields.update((name, self._node(node)) for name, node in described.items())
        return made

    def _node(self, node: Any) -> Shape:
        if isinstance(node, str):
            return self.of(node[1:]) if node.startswith("@") else _SCALARS[node]
        strategy = node.get("patch", "")
        if "l" in node:
            return Shape(
                "array",
                items=self._node(node["l"]),
                list_type=node.get("type", "atomic"),
                keys=tuple(node.get("keys", ())),
                key_defaults=node.get("defaults", {}),
                patch_strategy=strategy,
                patch_key=node.get("by", ""),
            )
        if "m" in node:
            return Shape("object", values=self._node(node["m"]), atomic=node.get("atomic", False))
        return replace(self._node(node["s"]), patch_strategy=strategy, atomic=node.get("atomic", False))


@cache
def _shapes() -> _Shapes:
    text = files(PACKAGE).joinpath(FILE).read_text(encoding="utf-8")
    return _Shapes(json.loads(text))


def generate(models: Iterable[str]) -> dict[str, Any]:
    """The data of the installed client's models of these names, and of all that they contain."""
    found: dict[str, Any] = {}
    waiting = list(models)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _type(name)
            waiting += re.findall(r'"@(\w+)"', json.dumps(found[name]))
    return dict(sorted(found.items()))


def _type(name: str) -> dict[str, Any]:
    model, short = getattr(importlib.import_module("kubernetes.client.models"), name), short_name(name)
    return {
        model.attribute_map[field]: _field(f"{short}.{model.attribute_map[field]}", native)
        for field, native in model.openapi_types.items()
    }


def _field(path: str, native: str) -> Any:
    inner = re.fullmatch(r"List\[(.+)\]", native)
    if inner:
        return {"l": _field(path, inner[1])} | _list_merge(path, inner[1])
    inner = re.fullmatch(r"Dict\[str, (.+)\]", native)
    if inner:
        return {"m": _field(path, inner[1])} | ({"atomic": True} if path in overlay.ATOMIC_MAPS else {})
    node = _scalar(path, native)
    if path in overlay.PATCHES:
        atomic = short_name(native) in overlay.ATOMIC_TYPES
        return {"s": node, "patch": overlay.PATCHES[path][0]} | ({"atomic": True} if atomic else {})
    return node


def _list_merge(path: str, native: str) -> dict[str, Any]:
    merge: dict[str, Any] = {}
    key = overlay.KEYED.get(path)
    if path.endswith(".conditions") and path not in overlay.ATOMIC_CONDITIONS and native != "str":
        key = "type"
    keys = overlay.KEYED_FOR_APPLY.get(path, (key,) if key else ())
    if keys:
        merge = {"type": "map", "keys": list(keys)}
    elif path in overlay.SETS:
        merge = {"type": "set"}
    if path in overlay.KEY_DEFAULTS:
        merge["defaults"] = overlay.KEY_DEFAULTS[path]
    strategy, by = overlay.PATCHES.get(path, ("merge", key) if key else ("", ""))
    return merge | ({"patch": strategy} if strategy else {}) | ({"by": by} if by else {})


def _scalar(path: str, native: str) -> str:
    field = path.partition(".")[2]
    if native == "int":
        return "int64" if path in overlay.INT64 or field in overlay.INT64_NAMES else "int32"
    if path in overlay.INT_OR_STRING:
        return "intstr"
    if native == "str" and path in overlay.QUANTITIES:
        return "quantity"
    if path in overlay.MICRO_TIMES:
        return "microtime"
    return _NATIVE.get(native, f"@{native}")


def write(folder: Path, models: Iterable[str]) -> None:
    """Write the data into a folder, one type a line."""
    types = generate(models)
    lines = [f"{json.dumps(name)}:{json.dumps(body, separators=(',', ':'))}" for name, body in types.items()]
    (folder / FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
