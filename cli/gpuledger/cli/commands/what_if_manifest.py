"""Reads the manifest for `what-if pool`, and validates it as an API server would when it is applied."""

import sys
from pathlib import Path
from typing import Any, Final

import yaml

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS, Resource
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.edge.kube.crds import shipped
from gpuledger.edge.kube.schema.object_meta import OBJECT_META
from gpuledger.edge.kube.schema.shapes import Shape
from gpuledger.local.kubeapi import decoding
from gpuledger.local.kubeapi.custom import resources_of
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.metadata import validate_metadata
from gpuledger.local.kubeapi.resources import ServedResource
from gpuledger.tools.errors import RequestError
from gpuledger.tools.whatif.pool import Manifest
from gpuledger.tools.whatif.refusals import refusal

STDIN: Final = "-"
Json = dict[str, Any]

KINDS: Final = {one.kind: one for one in (GPU_POOLS, CLUSTER_GPU_POOLS)}
CORRECT: Final = "Correct it, and run the command again"
ONE: Final = "Give the manifest of one GPUPool or ClusterGPUPool"
UNCHECKED: Final = "<nil>"
"""The field of a cause that only announces that there may be more causes."""

_YAML: Final = "application/yaml"
_HEAD: Final = Shape("object", fields={"metadata": OBJECT_META})


def read_manifest(file: str, namespace: str | None) -> Manifest:
    """The pool in a file, or in stdin for `-`; `namespace` is that of a GPUPool which names none.

    Raises:
        CliError: it cannot be read, is no pool, or would be refused wherever it is applied.
    """
    named = "The manifest in stdin" if file == STDIN else file
    obj, duplicates = _parsed(named, _text(file))
    resource = _resource(named, obj)
    _complete(named, resource, obj, duplicates, namespace)
    if (problem := refusal(resource, obj)) is not None:
        raise _wrong(f"{named} would be refused: {problem}")
    manifest = Manifest("stdin" if file == STDIN else file, resource, obj)
    try:
        manifest.hypothesis()
    except RequestError as error:
        raise _wrong(f"{named} is not understood: {error.message}") from error
    return manifest


def _text(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        hint = "Name a file with the manifest of a pool, or - for stdin"
        raise CliError(f"{file} cannot be read: {error.strerror or error}", hint, ExitCode.USAGE) from error


def _parsed(named: str, body: bytes) -> tuple[Json, list[str]]:
    """The one object in a text, and which of its fields it has twice."""
    try:
        documents = _documents(body.decode())
        if len(documents) != 1:
            count = f"{len(documents)} objects" if documents else "no object"
            raise CliError(f"{named} has {count}", ONE, ExitCode.USAGE)
        obj, duplicates = decoding.parse(documents[0].encode(), _YAML)
        return _only(named, obj), duplicates
    except yaml.MarkedYAMLError as error:
        raise _wrong(f"{named} is no YAML: {_where(error)}") from error
    except (ApiError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong(f"{named} is no manifest: {error}") from error


def _where(error: yaml.MarkedYAMLError) -> str:
    """The problem with its line and column in the text."""
    mark, problem = error.problem_mark, error.problem or error.context
    return f"{problem}" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _only(named: str, obj: Json) -> Json:
    """The object, or the only one of a List, as `kubectl get` writes it."""
    items = obj.get("items")
    if obj.get("kind") != "List" or not isinstance(items, list):
        return obj
    if len(items) != 1 or not isinstance(items[0], dict):
        raise CliError(f"{named} is a List of {len(items)} objects", ONE, ExitCode.USAGE)
    return items[0]


def _documents(text: str) -> list[str]:
    """The texts of the documents that hold anything; of a list, as `gpuledger get` writes it, those of its items."""
    nodes = list[yaml.Node]()
    for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
        nodes += node.value if isinstance(node, yaml.SequenceNode) else [] if _is_empty(node) else [node]
    return [" " * one.start_mark.column + text[one.start_mark.index : one.end_mark.index] for one in nodes]


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.value


def _resource(named: str, obj: Json) -> Resource:
    kind, version = obj.get("kind"), obj.get("apiVersion")
    resource = KINDS.get(str(kind))
    if resource is None or version != resource.api_version:
        what = _called(kind, version)
        hint = f"Give a {' or '.join(KINDS)} of {GPU_POOLS.api_version}"
        raise CliError(f"{named} is {what}, and what-if is about pools", hint, ExitCode.USAGE)
    return resource


def _called(kind: object, version: object) -> str:
    if not kind:
        return "no object of Kubernetes"
    return f"{kind} of {version}" if version else f"{kind} without an apiVersion"


def _complete(named: str, resource: Resource, obj: Json, duplicates: list[str], namespace: str | None) -> None:
    """Give the object its namespace and defaults, leave out its status, and hold it to its schema."""
    obj.pop("status", None)
    try:
        decoding.check_types(obj, _HEAD)
    except ApiError as error:
        raise _wrong(f"{named} is no {resource.kind}: {error}") from error
    obj["metadata"] = _placed(named, resource, obj.get("metadata") or {}, namespace)
    served = _served(resource)
    unknown = decoding.prune(obj, served.shape)
    if unknown or duplicates:
        raise _wrong(f"{named} is no {resource.kind}: {', '.join(decoding.warning_texts(unknown, duplicates))}")
    served.strategy.default(obj)
    causes = [*validate_metadata(served, obj), *served.strategy.validate(obj)]
    if causes := [one for one in causes if one.field != UNCHECKED]:
        problems = "; ".join(f"{one.field}: {one.message}" if one.field else one.message for one in causes)
        raise _wrong(f"{named} is no valid {resource.kind}: {problems}")


def _placed(named: str, resource: Resource, metadata: Json, namespace: str | None) -> Json:
    if not metadata.get("name"):
        raise _wrong(f"{named} is a {resource.kind} without a name: metadata.name is missing")
    own = metadata.get("namespace")
    if resource.namespaced and own and namespace not in (None, own):
        hint = "Leave -n out, or name the same"
        raise CliError(f"{named} is in namespace {own}, not in {namespace}", hint, ExitCode.USAGE)
    if own or not resource.namespaced:
        return metadata
    if namespace is None:
        hint = "Give it with -n, or write metadata.namespace"
        raise CliError(f"{named} is a {resource.kind} without a namespace", hint, ExitCode.USAGE)
    return {**metadata, "namespace": namespace}


def _served(resource: Resource) -> ServedResource:
    (crd,) = (one for one in shipped() if one["spec"]["names"]["kind"] == resource.kind)
    return next(one for one in resources_of(crd) if one.api_version == resource.api_version)


def _wrong(what: str) -> CliError:
    return CliError(what, CORRECT, ExitCode.USAGE)
