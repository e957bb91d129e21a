"""Reads built-in types in Kubernetes' protobuf encoding, which typed Go clients such as kubectl send.

Answers are never written in it, since every client accepts JSON as well. The field numbers are data beside the types'
structure. A field that the data lacks is refused rather than dropped, unless it is empty.
"""

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.shapes import ANYTHING, Shape
from gpuledger.local.kubeapi.builtin_shapes import PACKAGE, model_of, shape

FILE = "wire.json"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
DEPTH_MAX = 64
VARINT_BYTES_MAX = 10

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGN, _WRAP = 1 << 63, 1 << 64
_ALONE = {"ownerReferences": "V1OwnerReference", "managedFields": "V1ManagedFieldsEntry"}
"""Types of lists whose shape is not generated."""

_KEPT_IF_ZERO = frozenset(
    "activeDeadlineSeconds allocateLoadBalancerNodePorts allowPrivilegeEscalation automountServiceAccountToken "
    "backoffLimit backoffLimitPerIndex blockOwnerDeletion completions controller defaultMode "
    "deletionGracePeriodSeconds enableServiceLinks expirationSeconds failedJobsHistoryLimit fsGroup "
    "gracePeriodSeconds hostUsers immutable maxFailedIndexes mode optional orphanDependents parallelism "
    "partition priority privileged progressDeadlineSeconds readOnlyRootFilesystem replicas revisionHistoryLimit "
    "runAsGroup runAsNonRoot runAsUser setHostnameAsFQDN shareProcessNamespace startingDeadlineSeconds "
    "storageClassName successfulJobsHistoryLimit suspend terminationGracePeriodSeconds tolerationSeconds "
    "ttlSecondsAfterFinished".split()
)
"""Optional scalars, whose zeros are kept; for others a zero means absent."""

_Table = Mapping[str, Any]


class UnreadableError(ValueError):
    """The bytes are no message of a known type."""


def load(body: bytes) -> Object:
    """The object of a body.

    Raises:
        UnreadableError: it is malformed, of an unknown type, or has unknown fields.
    """
    if not body.startswith(MAGIC):
        raise UnreadableError("the body does not begin as Kubernetes' protobuf does")
    parts = dict(_fields(body[len(MAGIC) :]))
    head = {number: _text(value) for number, value in _fields(_bytes(parts.get(1, b"")))}
    api_version, kind = head.get(1, ""), head.get(2, "")
    model = _model(api_version, kind)
    return {"apiVersion": api_version, "kind": kind} | _message(_bytes(parts.get(2, b"")), model, 0)


@cache
def _tables() -> dict[str, _Table]:
    found: dict[str, _Table] = json.loads(files(PACKAGE).joinpath(FILE).read_text(encoding="utf-8"))
    return found


def _model(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    short = f"V{version[1:]}{kind}"
    prefix = group.partition(".")[0].capitalize() or "Core"
    for name in (f"{prefix}{short}", short):
        if name in _tables():
            return name
    raise UnreadableError(f"no kind {kind!r} of {api_version!r} is read from protobuf; send it as JSON")


def _message(data: bytes, model: str, depth: int) -> Object:
    table = _tables().get(model)
    if table is None:
        raise UnreadableError(f"{model} is not read from protobuf; send it as JSON")
    obj: Object = {}
    _read(data, table, shape(model), obj, depth)
    return obj


def _read(data: bytes, table: _Table, field_shape: Shape, obj: Object, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise UnreadableError("the message is nested too deeply")
    for number, value in _fields(data):
        name = table.get(str(number))
        if name is None:
            _refuse_unknown(number, value)
        elif isinstance(name, Mapping):
            _read(_bytes(value), name, field_shape, obj, depth + 1)
        else:
            _put(obj, name, value, field_shape.fields[name], depth)


def _refuse_unknown(number: int, value: int | bytes) -> None:
    if value:
        raise UnreadableError(f"field number {number} is not known; send it as JSON")


def _put(obj: Object, name: str, value: int | bytes, field_shape: Shape, depth: int) -> None:
    if field_shape.kind == "array":
        obj.setdefault(name, []).extend(_items(value, field_shape.items or ANYTHING, name, depth))
    elif field_shape.values is not None and not field_shape.fields:
        obj.setdefault(name, {}).update([_pair(_bytes(value), field_shape.values, depth)])
    else:
        read = _value(value, field_shape, name, depth)
        if read is not None and (read not in (0, "") or name in _KEPT_IF_ZERO or field_shape.int_or_string):
            obj[name] = read


def _items(value: int | bytes, field_shape: Shape, name: str, depth: int) -> Iterator[Any]:
    if field_shape.kind == "integer" and isinstance(value, bytes):
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            yield _signed(number)
    else:
        yield _value(value, field_shape, name, depth)


def _pair(data: bytes, field_shape: Shape, depth: int) -> tuple[str, Any]:
    parts = dict(_fields(data))
    value = parts.get(2, b"")
    if field_shape.kind == "array":
        read: Any = [_value(item, field_shape.items or ANYTHING, "", depth) for _, item in _fields(_bytes(value))]
    else:
        read = _value(value, field_shape, "", depth)
    return _text(parts.get(1, b"")), read


def _value(value: int | bytes, field_shape: Shape, name: str, depth: int) -> Any:
    if field_shape.kind == "object":
        return _message(_bytes(value), model_of(field_shape) or _ALONE.get(name, "a type of its own"), depth + 1)
    read = _FORMATS.get("any" if field_shape.kind == "any" else field_shape.format)
    return _scalar(value, field_shape) if read is None else read(_bytes(value))


def _scalar(value: int | bytes, field_shape: Shape) -> Any:
    if field_shape.kind == "string":
        return _text(value)
    if field_shape.kind == "number":
        return struct.unpack("<d", _bytes(value))[0]
    if not isinstance(value, int):
        raise UnreadableError("a number is written as bytes")
    return bool(value) if field_shape.kind == "boolean" else _signed(value)


def _int_or_string(data: bytes) -> int | str:
    parts = dict(_fields(data))
    if parts.get(1):
        return _text(parts.get(3, b""))
    number = parts.get(2, 0)
    return _signed(number) if isinstance(number, int) else 0


def _time(data: bytes, precision: str) -> str | None:
    parts = dict(_fields(data))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise UnreadableError("a time is written as bytes")
    if not data:
        return None
    try:
        when = datetime.fromtimestamp(_signed(seconds), UTC).replace(microsecond=nanos // 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise UnreadableError(f"no such time: {seconds}") from error
    return when.isoformat(timespec=precision).replace("+00:00", "Z")


def _raw(data: bytes) -> Any:
    text = _bytes(dict(_fields(data)).get(1, b""))
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError as error:
        raise UnreadableError(f"raw JSON cannot be read: {error}") from error


def _quantity(data: bytes) -> str:
    return _text(dict(_fields(data)).get(1, b"0"))


_FORMATS: Mapping[str, Callable[[bytes], Any]] = {
    "any": _raw,
    "byte": lambda data: base64.b64encode(data).decode(),
    "date-time": lambda data: _time(data, "seconds"),
    "int-or-string": _int_or_string,
    "micro-time": lambda data: _time(data, "microseconds"),
    "quantity": _quantity,
}


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in order, with unsigned numbers."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _varint(data, at)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in {_FIXED64, _FIXED32}:
            length = 8 if kind == _FIXED64 else 4
        else:
            raise UnreadableError(f"no such wire type: {kind}")
        if at + length > len(data):
            raise UnreadableError("the message ends early")
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(data[at : at + VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number % _WRAP, at + shift + 1
    raise UnreadableError("a number ends early")


def _signed(number: int) -> int:
    return number - _WRAP if number >= _SIGN else number


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise UnreadableError("a message is written as a number")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError as error:
        raise UnreadableError("a string is no UTF-8") from error
