"""Parses the body of a request and checks it against a type: duplicate, unknown and mistyped fields.

Bodies are JSON, YAML or, for built-in types, protobuf; everything else is answered with 415. Values that fit their
type are not judged here; defaults and validation come later.
"""

import base64
import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import orjson

from gpuledger.domain.quantities import parse_quantity
from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.shapes import ANYTHING, Shape
from gpuledger.local.kubeapi import protobuf, yaml_bodies
from gpuledger.local.kubeapi.errors import ApiError, bad_request

READABLE = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)
"""The media types that Kubernetes names in its error."""

MAX_WARNINGS = 100

NESTED_MAX = 200
"""Objects with no more braces need no depth check; orjson writes some 250 levels."""

WRAPPED_MAX = 16
"""The depth of an object within an answer: in the row of a table in an event, or in a review."""

_KEPT = frozenset({"apiVersion", "kind", "metadata"})
_WHOLE_FLOAT = re.compile(rb"\.0(?:[,}\]]|$)")
"""Found in the text of every value that holds a float below 2**53 without a fraction, and sometimes in others."""

_GO_TYPES = {"string": "string", "boolean": "bool", "number": "float64", "integer": "int64"}
_TIMES = {"date-time": "2006-01-02T15:04:05Z07:00", "micro-time": "2006-01-02T15:04:05.000000Z07:00"}
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d([.,]\d+)?([Zz]|[+-]\d\d:\d\d)")
_FRACTION_DIGITS = 6
_NULL_TIMES = frozenset(
    "deprecatedFirstTimestamp deprecatedLastTimestamp eventTime firstTimestamp lastHeartbeatTime lastProbeTime "
    "lastTimestamp lastTransitionTime".split()
)
"""Times that Kubernetes writes as null if they are not set."""

_FLAGS = frozenset(
    "hostNetwork hostPID hostIPC stdin stdinOnce tty unschedulable paused readOnly publishNotReadyAddresses "
    "globalDefault".split()
)
_TEXTS = frozenset("value nodeName podCIDR providerID priorityClassName hostname subdomain subPath hostIP".split())
"""Flags and texts that Kubernetes leaves out if they are false or empty."""


def media_type_of(content_type: str) -> str:
    """The media type without its parameters; JSON by default."""
    return content_type.partition(";")[0].strip().lower() or "application/json"


def parse(body: bytes, media_type: str) -> tuple[Object, list[str]]:
    """Parse an object; also returns the paths of duplicate fields, of which the last one counts.

    Raises:
        ApiError: 400 if the body is no object, 415 for an unsupported media type.
    """
    value, duplicates = _read(body, media_type)
    if not isinstance(value, dict):
        raise bad_request(f"couldn't get version/kind; json parse error: json: cannot unmarshal {_json_type(value)}")
    return value, duplicates


def parse_patch(body: bytes, media_type: str) -> tuple[Any, list[str]]:
    """Parse a patch, which may be a list; otherwise like `parse`."""
    try:
        return _read(body, media_type)
    except ApiError as error:
        raise ApiError(error.code, error.reason, f"error decoding patch: {error.message}") from error


def _read(body: bytes, media_type: str) -> tuple[Any, list[str]]:
    kind = media_type_of(media_type)
    if kind == "application/json" or kind.endswith("+json"):
        return _read_json(body)
    if kind == "application/yaml" or kind.endswith("+yaml"):
        return _read_yaml(body)
    if kind == protobuf.MEDIA_TYPE and body.startswith(protobuf.MAGIC):
        return _read_protobuf(body)
    raise unsupported_media_type(READABLE)


def unsupported_media_type(accepted: Iterable[str]) -> ApiError:
    """415, with the accepted media types."""
    types = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {types}"
    return ApiError(415, "UnsupportedMediaType", message)


def _read_json(body: bytes) -> tuple[Any, list[str]]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        problem = str(error) if body.strip() else "unexpected end of JSON input"
        raise bad_request(f"couldn't get version/kind; json parse error: {problem}") from error
    text, body = check_depth(value), body.strip()
    duplicates = [] if text == body or _weight(text) == _weight(body) else _duplicates(body)
    return (_whole(value) if _WHOLE_FLOAT.search(text) else value), duplicates


def _read_yaml(body: bytes) -> tuple[Any, list[str]]:
    if body.lstrip()[:1] == b"{":
        try:
            return _read_json(body)
        except ApiError:
            pass  # A flow mapping looks like JSON.
    try:
        value, duplicates = yaml_bodies.load(body)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"error converting YAML to JSON: {error}") from error
    check_depth(value)
    return _whole(value), duplicates


def _read_protobuf(body: bytes) -> tuple[Any, list[str]]:
    try:
        return protobuf.load(body), []
    except protobuf.UnreadableError as error:
        raise ApiError(415, "UnsupportedMediaType", f"the body cannot be read: {error}") from error


def check_depth(value: Any) -> bytes:
    """The value as JSON, if lists and tables of it can be written as well.

    Raises:
        ApiError: 400, it is nested too deeply.
    """
    try:
        text = orjson.dumps(value)
        if text.count(b"{") + text.count(b"[") > NESTED_MAX:
            orjson.dumps(reduce(lambda inner, _: [inner], range(WRAPPED_MAX), value))
    except TypeError as error:
        raise bad_request(f"the object cannot be written: {error}") from error
    return text


def _weight(text: bytes) -> int:
    """The text's length without the blanks of separators, which does not depend on formatting."""
    return len(text) - text.count(b", ") - text.count(b": ")


def _duplicates(body: bytes) -> list[str]:
    """The paths of duplicate keys."""
    found: list[str] = []
    _place(json.loads(body, object_pairs_hook=_Pairs), "", found)
    return found


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, duplicates included."""


def _place(value: object, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, child in value:
            at = _below(path, key)
            if key in seen:
                found.append(at)
            seen.add(key)
            _place(child, at, found)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            _place(child, f"{path}[{index}]", found)


def _whole(value: Any) -> Any:
    """Turn floats without a fraction into integers, as Kubernetes does."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_whole(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def prune(obj: Object, shape: Shape) -> list[str]:
    """Remove unknown fields in place; returns their sorted paths."""
    unknown: list[str] = []
    for name in list(obj):
        child = shape.child(name)
        if child is not None:
            _prune(obj[name], child, name, unknown)
        elif name not in _KEPT and not shape.preserves:
            del obj[name]
            unknown.append(name)
    return sorted(unknown)


def _prune(value: object, shape: Shape, path: str, unknown: list[str]) -> None:
    if isinstance(value, dict) and shape.kind in {"object", "any"}:
        _prune_fields(value, shape, path, unknown)
    elif isinstance(value, list) and shape.items is not None:
        for index, item in enumerate(value):
            _prune(item, shape.items, f"{path}[{index}]", unknown)


def _prune_fields(value: Object, shape: Shape, path: str, unknown: list[str]) -> None:
    for name in list(value):
        child = shape.child(name)
        at = f"{path}.{name}"
        if child is not None:
            _prune(value[name], child, at, unknown)
        elif not shape.preserves:
            del value[name]
            unknown.append(at)


def warning_texts(unknown: Iterable[str], duplicates: Iterable[str]) -> list[str]:
    """Warnings of dropped fields, at most `MAX_WARNINGS`."""
    texts = [f'duplicate field "{path}"' for path in duplicates] + [f'unknown field "{path}"' for path in unknown]
    return texts[:MAX_WARNINGS]


def strict_error(kind: str, version: str, unknown: Iterable[str], duplicates: Iterable[str]) -> ApiError:
    """400 for unknown or duplicate fields under `fieldValidation=Strict`."""
    return cannot_be_handled(kind, version, strict_message(unknown, duplicates))


def strict_message(unknown: Iterable[str], duplicates: Iterable[str]) -> str:
    """The message of `strict_error` without the type."""
    return f"strict decoding error: {', '.join(warning_texts(unknown, duplicates))}"


def cannot_be_handled(kind: str, version: str, problem: str) -> ApiError:
    """400 for a body that does not fit its type."""
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}')


def _json_type(value: object) -> str:
    names = {list: "array", str: "string", bool: "bool", type(None): "null"}
    return names.get(type(value), "number")


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def check_types(obj: Object, shape: Shape) -> None:
    """Check that every value fits its field; ApiError 400 otherwise.

    Null fits everywhere and counts as absent. Unknown fields are ignored.
    """
    try:
        _check(obj, shape, "")
    except _MistypedError as error:
        version = str(obj.get("apiVersion", "")).rpartition("/")[2]
        raise cannot_be_handled(str(obj.get("kind", "")), version, str(error)) from error


class _MistypedError(Exception):
    """A value does not fit its field."""


def _check(value: Any, shape: Shape, path: str) -> None:
    if value is None or shape.kind == "any":
        return
    if shape.kind == "object":
        _check_object(value, shape, path)
    elif shape.kind == "array":
        if not isinstance(value, list):
            raise _mismatch(value, path, "slice")
        for index, item in enumerate(value):
            _check(item, shape.items or ANYTHING, f"{path}[{index}]")
    else:
        _check_scalar(value, shape, path)


def _check_object(value: object, shape: Shape, path: str) -> None:
    if not isinstance(value, dict):
        raise _mismatch(value, path, "struct" if shape.fields else "map")
    for name, child in value.items():
        child_shape = shape.child(name)
        if child_shape is not None:
            _check(child, child_shape, _below(path, name))


def _check_scalar(value: object, shape: Shape, path: str) -> None:
    if shape.int_or_string:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _mismatch(value, path, "int32")
    elif shape.format == "quantity":
        _check_quantity(value)
    elif shape.kind == "integer":
        _check_integer(value, shape, path)
    elif shape.kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _mismatch(value, path, "float64")
    elif not isinstance(value, str if shape.kind == "string" else bool):
        raise _mismatch(value, path, _GO_TYPES[shape.kind])
    else:
        _check_format(value, shape.format)


def _check_integer(value: object, shape: Shape, path: str) -> None:
    bits = 32 if shape.format == "int32" else 64
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch(value, path, f"int{bits}")
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise _MistypedError(f"json: cannot unmarshal number {value} into Go struct field .{path} of type int{bits}")


def _check_quantity(value: object) -> None:
    try:
        parse_quantity(value)
    except ValueError as error:
        raise _MistypedError(str(error)) from error


def _check_format(value: object, form: str) -> None:
    if not isinstance(value, str):
        return
    if form == "byte":
        _check_base64(value)
    elif form in _TIMES:
        match = _DATE_TIME.fullmatch(value)
        if not match or not _is_date(value) or (form == "micro-time" and len(match[1] or "") != _FRACTION_DIGITS + 1):
            layout = _TIMES[form]
            raise _MistypedError(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')


def _check_base64(value: str) -> None:
    try:
        base64.b64decode("".join(value.split()), validate=True)
    except ValueError as error:
        raise _MistypedError("illegal base64 data at input byte 0") from error


def _is_date(value: str) -> bool:
    try:
        datetime.fromisoformat(value[:19].upper())
    except ValueError:
        return False
    return True


def _mismatch(value: object, path: str, expected: str) -> _MistypedError:
    given = "object" if isinstance(value, dict) else _json_type(value)
    return _MistypedError(f"json: cannot unmarshal {given} into Go struct field .{path} of type {expected}")


def normalize(obj: Object, shape: Shape) -> None:
    """Write values of a built-in type, in place, as Kubernetes answers them; after `check_types`.

    Nulls (except for some times), empty lists and empty maps vanish, quantities become canonical, times UTC.
    Empty structs and unknown fields stay.
    """
    for name in list(obj):
        child_shape = shape.child(name)
        value = obj[name]
        if value is None and shape.fields and child_shape is not None:
            if name not in _NULL_TIMES:
                del obj[name]
        elif child_shape is not None and child_shape.kind != "any":
            obj[name] = _normal(value, child_shape)
            if shape.fields and _vanishes(name, obj[name], child_shape):
                del obj[name]


def _normal(value: Any, shape: Shape) -> Any:
    if isinstance(value, dict):
        normalize(value, shape)
    elif isinstance(value, list):
        return [_normal(item, shape.items or ANYTHING) for item in value]
    elif shape.format == "quantity" and value is not None:
        return str(parse_quantity(value))
    elif shape.format in _TIMES and isinstance(value, str):
        return _utc(value, "microseconds" if shape.format == "micro-time" else "seconds")
    return value


def _vanishes(name: str, value: object, shape: Shape) -> bool:
    if value is False or value == "":
        return name in (_FLAGS if value is False else _TEXTS)
    return value == [] or (value == {} and not shape.fields)


def _utc(value: str, precision: str) -> str:
    when = datetime.fromisoformat(value.upper()).astimezone(UTC)
    return when.isoformat(timespec=precision).replace("+00:00", "Z")
