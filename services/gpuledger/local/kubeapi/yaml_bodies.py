"""Reads YAML as Kubernetes does: plain scalars become JSON values, keys become strings, and tags build no objects.

PyYAML's own rules differ: it reads times, and sexagesimal numbers where Kubernetes reads text.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

MAX_NODES = 1_000_000
"""The maximum number of values of a document, against aliases of aliases."""

INTEGER_MAX = 2**63

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BASE):  # type: ignore[misc]
    """A loader with resolvers of its own; mappings are composed here, so that duplicates are seen."""

    yaml_implicit_resolvers: dict[str, Any] = {}


def _resolve(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))


_resolve("bool", "true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|y|Y|n|N", "tTfFyYnNoO")
_resolve("null", "~|null|Null|NULL|", "~nN")
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^$"), [""])
_resolve("int", r"[-+]?(?:0|[1-9][0-9_]*|0[0-7_]+|0o[0-7_]+|0b[01_]+|0x[0-9a-fA-F_]+)", "-+0123456789")
_resolve("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789")
_resolve("merge", "<<", "<")


def load(body: bytes) -> tuple[Any, list[str]]:
    """The first document as JSON, and the paths of duplicate keys; ValueError for invalid YAML."""
    try:
        loader = _Loader(body)
        try:
            node = loader.get_node() if loader.check_node() else None
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = " ".join(str(error).split())
        raise ValueError(f"yaml: {message}") from error
    reader = _Reader()
    return (None if node is None else reader.value(node, "")), reader.duplicates


class _Reader:
    """Converts nodes to JSON values and counts them."""

    def __init__(self) -> None:
        self.duplicates: list[str] = []
        self._left = MAX_NODES

    def value(self, node: Any, path: str) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ValueError("yaml: document contains excessive aliasing")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: Any, path: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag.endswith(":merge"):
                merged |= self._merged(value_node, path)
                continue
            key = _key(key_node)
            at = f"{path}.{key}" if path else key
            if key in out:
                self.duplicates.append(at)
            out[key] = self.value(value_node, at)
        return merged | out

    def _merged(self, node: Any, path: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for source in _sources(node):
            out = self._mapping(source, path) | out
        return out


def _sources(node: Any) -> Iterator[Any]:
    for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        if not isinstance(source, yaml.MappingNode):
            raise ValueError("yaml: map merge requires map or sequence of maps as the value")
        yield source


def _key(node: Any) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError("yaml: unsupported map key")
    value = _scalar(node)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _scalar(node: Any) -> Any:
    text = node.value
    match node.tag.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return text.lower() in {"true", "yes", "on", "y"}
        case "int":
            return _integer(text.replace("_", ""))
        case "float":
            return float(text)
        case _:
            return text


def _integer(text: str) -> int | float:
    """Integers of more than 64 bits are floats."""
    number = _exact(text)
    return number if -INTEGER_MAX <= number < 2 * INTEGER_MAX else float(number)


def _exact(text: str) -> int:
    digits = text.lstrip("+-")
    sign = -1 if text.startswith("-") else 1
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return sign * int(digits, 8)
    return sign * int(digits, 0)
