"""Applies JSON patches (RFC 6902) and JSON merge patches (RFC 7386), with the errors that Kubernetes answers.

Neither depends on types. A patch is never changed and never shares parts with a result, because it may be applied again
to a newer object.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson
from jsonpatch import JsonPatch, JsonPatchException, JsonPatchTestFailed, JsonPointerException, TestOperation

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.equality import same
from gpuledger.local.kubeapi.errors import UNPROCESSABLE, ApiError, bad_request
from gpuledger.local.kubeapi.typed import copied

OPERATIONS_MAX = 10_000
COPIED_BYTES_MAX = 3 * 1024 * 1024
"""The maximum size of a document after a `copy`."""


def json_patch(obj: Object, operations: Any) -> Object:
    """The object after all operations, in order.

    Raises:
        ApiError: 400 for an invalid patch; 413 for too many operations; 422 for an operation or a test that fails, also
            for negative list indices, which Kubernetes accepts.
    """
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: a patch must be a list of operations")
    if len(operations) > OPERATIONS_MAX:
        raise _too_large(len(operations))
    for operation in operations:
        _check_form(operation)
    document: Any = copied(obj)
    try:
        for operation in operations:
            document = _Patch([operation]).apply(document, in_place=True)
            if operation.get("op") == "copy" and len(orjson.dumps(document)) > COPIED_BYTES_MAX:
                raise _rejected(f"copies may not make a document longer than {COPIED_BYTES_MAX} bytes")
    except (JsonPatchException, JsonPointerException, TypeError) as error:
        raise _rejected(str(error)) from error
    if not isinstance(document, dict):
        raise _rejected("the patched document is no object")
    return document


def merge_patch(obj: Object, patch: Any) -> Object:
    """The object after a merge patch; a null removes a field.

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
    if operation.get("op") == "add" and not operation.get("path"):
        raise _rejected("the whole document cannot be added")


def _too_large(count: int) -> ApiError:
    text = f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"
    return ApiError(413, "RequestEntityTooLarge", text)


def _rejected(why: str) -> ApiError:
    text = "the server rejected our request due to an error in our request"
    return ApiError(UNPROCESSABLE, "Invalid", f"{text}: {why}", {})


class _Test(TestOperation):
    """A test that treats an absent value as null, and does not equate `true` and 1."""

    def apply(self, obj: Any) -> Any:
        if not same(self.pointer.resolve(obj, None), self.operation.get("value")):
            raise JsonPatchTestFailed(f"testing value {self.location} failed")
        return obj


class _Patch(JsonPatch):
    operations = MappingProxyType({**JsonPatch.operations, "test": _Test})
