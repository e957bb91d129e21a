"""JSON patches (RFC 6902) and JSON merge patches (RFC 7386), with the answers that Kubernetes gives to bad ones.

Neither knows anything of types. A patch is never changed and no part of it ends up in a result, because it may be
tried again on a newer object.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.equality import same
from gpuledger.local.kubeapi.errors import UNPROCESSABLE, ApiError, bad_request
from gpuledger.local.kubeapi.typed import copied

OPERATIONS_MAX = 10_000
COPIED_BYTES_MAX = 3 * 1024 * 1024
"""How much the `copy` operations of one patch may add up to."""

_INDEX: Final = re.compile(r"-?[0-9]{1,18}")


class _FailedError(Exception):
    """An operation does not apply."""


def json_patch(obj: Object, operations: Any) -> Object:
    """The object after all operations, in order.

    Raises:
        ApiError: 400, it is no patch; 413, it has too many operations; 422, an operation or a test fails.
    """
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: a patch must be a list of operations")
    if len(operations) > OPERATIONS_MAX:
        raise _too_large(len(operations))
    for operation in operations:
        _check_form(operation)
    patch = _Patch(copied(obj))
    try:
        for operation in operations:
            patch.do(operation)
    except _FailedError as error:
        raise _rejected(str(error)) from error
    if not isinstance(patch.document, dict):
        raise _rejected("the patched document is no object")
    return patch.document


def merge_patch(obj: Object, patch: Any) -> Object:
    """The object with a merge patch laid over it; a null removes what it names.

    Raises:
        ApiError: 400, the patch is no object.
    """
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: json: a merge patch must be an object")
    return _merged(obj, patch)


def _merged(obj: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    merged = dict(obj)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif not isinstance(merged.get(name), dict):
            merged[name] = _without_nulls(value)
        elif isinstance(value, dict):
            merged[name] = _merged(merged[name], value)
        else:
            merged[name] = copied(value)
    return merged


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _check_form(operation: Any) -> None:
    words = ("op", "path", "from")
    if not isinstance(operation, dict) or not all(isinstance(operation.get(word, ""), str) for word in words):
        raise bad_request("error decoding patch: json: an operation must be an object with op, path and from as text")


def _too_large(count: int) -> ApiError:
    text = f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"
    return ApiError(413, "RequestEntityTooLarge", text)


def _rejected(why: str) -> ApiError:
    text = "the server rejected our request due to an error in our request"
    return ApiError(UNPROCESSABLE, "Invalid", f"{text}: {why}", {})


class _Patch:
    """A document that is being changed."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._copied_bytes = 0
        self._ways: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "add": self._add,
            "copy": self._copy,
            "move": self._move,
            "remove": self._remove,
            "replace": self._replace,
            "test": self._test,
        }

    def do(self, operation: Mapping[str, Any]) -> None:
        """Change the document.

        Raises:
            _FailedError: the operation does not apply.
        """
        way = self._ways.get(operation.get("op", ""))
        if way is None:
            raise _FailedError(f"unexpected kind: {operation.get('op', '')}")
        if "path" not in operation:
            raise _FailedError("missing path")
        way(operation)

    def _add(self, operation: Mapping[str, Any]) -> None:
        self._put(operation["path"], copied(operation.get("value")))

    def _replace(self, operation: Mapping[str, Any]) -> None:
        value = copied(operation.get("value"))
        if not operation["path"]:
            self.document = value
            return
        parent, last = self._parent(operation["path"])
        _read(parent, last)
        parent[last if isinstance(parent, dict) else _index(last, len(parent))] = value

    def _remove(self, operation: Mapping[str, Any]) -> None:
        self._take(operation["path"])

    def _move(self, operation: Mapping[str, Any]) -> None:
        if f"{operation['path']}/".startswith(f"{operation.get('from', '')}/") and (
            operation["path"] != operation.get("from")
        ):
            raise _FailedError("a value cannot be moved into itself")
        self._put(operation["path"], self._take(operation.get("from", "")))

    def _copy(self, operation: Mapping[str, Any]) -> None:
        value = copied(_read(*self._parent(operation.get("from", ""))))
        self._copied_bytes += len(orjson.dumps(value))
        if self._copied_bytes > COPIED_BYTES_MAX:
            raise _FailedError(f"copies may not add up to more than {COPIED_BYTES_MAX} bytes")
        self._put(operation["path"], value)

    def _test(self, operation: Mapping[str, Any]) -> None:
        path, wanted = operation["path"], operation.get("value")
        if not path:
            found = self.document
        else:
            parent, last = self._parent(path)
            absent = isinstance(parent, dict) and last not in parent
            found = None if absent else _read(parent, last)
        if not same(found, wanted):
            raise _FailedError(f"testing value {path} failed")

    def _put(self, path: str, value: Any) -> None:
        parent, last = self._parent(path)
        if isinstance(parent, dict):
            parent[last] = value
        else:
            parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)

    def _take(self, path: str) -> Any:
        parent, last = self._parent(path)
        value = _read(parent, last)
        del parent[last if isinstance(parent, dict) else _index(last, len(parent))]
        return value

    def _parent(self, path: str) -> tuple[Any, str]:
        """What holds the value at a path, and under which name."""
        if not path.startswith("/"):
            raise _FailedError(f"doc is missing path: {path!r}")
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/"))
        holder = self.document
        for name in way:
            holder = _read(holder, name)
        if not isinstance(holder, dict | list):
            raise _FailedError(f"doc is missing path: {path!r}")
        return holder, last


def _read(holder: Any, name: str) -> Any:
    if isinstance(holder, dict) and name in holder:
        return holder[name]
    if isinstance(holder, list):
        return holder[_index(name, len(holder))]
    raise _FailedError(f"doc is missing key: {name}")


def _index(name: str, length: int) -> int:
    """A place in a list; negative ones count from its end, as Kubernetes has it."""
    if not _INDEX.fullmatch(name) or not -length <= (index := int(name)) < length:
        raise _FailedError(f"no index of the list: {name}")
    return index if index >= 0 else index + length
