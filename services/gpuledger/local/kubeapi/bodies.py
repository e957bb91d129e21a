"""Reads the bodies of requests: parses them, checks them against the URL and removes fields that the type lacks."""

from gpuledger.edge.kube.schema.causes import Object, invalid
from gpuledger.edge.kube.schema.object_meta import OBJECT_META
from gpuledger.edge.kube.schema.shapes import ANYTHING, Shape
from gpuledger.local.kubeapi import decoding, managed
from gpuledger.local.kubeapi.builtin_shapes import shape
from gpuledger.local.kubeapi.errors import ApiError, bad_request, internal, unprocessable
from gpuledger.local.kubeapi.options import WriteOptions
from gpuledger.local.kubeapi.patches import json_patch, merge_patch
from gpuledger.local.kubeapi.reading import presented
from gpuledger.local.kubeapi.requests import ApiRequest
from gpuledger.local.kubeapi.strategic import strategic_merge
from gpuledger.local.kubeapi.writing import Change, reset_of

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
DELETE_OPTIONS = "DeleteOptions"

_HEAD = Shape("object", fields={"apiVersion": Shape("string"), "kind": Shape("string"), "metadata": ANYTHING})
"""The fields that every object has."""

_ALSO_READ = frozenset({("Eviction", "policy/v1beta1")})
"""Kinds that are accepted in an older version too."""

_TYPED_HEAD = Shape("object", fields={"metadata": OBJECT_META})


def read_object(body: bytes, content_type: str, request: ApiRequest, options: WriteOptions) -> Object:
    """The object of a POST or PUT.

    Raises:
        ApiError: it is unreadable, of another kind or, with strict validation, has unknown fields.
    """
    resource = request.target.resource
    obj, duplicates = decoding.parse(body, content_type)
    _check_kind(obj, request, options)
    _check_types(obj, request)
    unknown = decoding.prune(obj, _shape_of(request))
    if not resource.is_custom:
        decoding.normalize(obj, _shape_of(request))
    if options.field_validation == "Strict" and (unknown or duplicates):
        raise decoding.strict_error(resource.kind, resource.version, unknown, duplicates)
    if options.field_validation == "Warn":
        request.warnings.extend(decoding.warning_texts(unknown, duplicates))
    return obj


def read_delete_options(body: bytes, content_type: str) -> Object:
    """The options of a DELETE.

    Raises:
        ApiError: 415 for an unsupported media type; 400, they are unreadable.
    """
    options, _ = decoding.parse(body, content_type)
    if options.get("kind", DELETE_OPTIONS) != DELETE_OPTIONS:
        raise bad_request("decoded object cannot be converted to DeleteOptions")
    decoding.check_types(options, shape("V1DeleteOptions"))
    return options


def patched(body: bytes, content_type: str, request: ApiRequest, options: WriteOptions) -> Change:
    """The change that a patch makes to an object.

    Raises:
        ApiError: the patch cannot be read or is of a type that the resource does not take.
    """
    kind, resource = decoding.media_type_of(content_type), request.target.resource
    accepted = [JSON_PATCH, MERGE_PATCH] + ([] if resource.is_custom else [STRATEGIC_PATCH])
    if kind not in accepted:
        raise decoding.unsupported_media_type([*accepted, APPLY_PATCH])
    patch, duplicates = decoding.parse_patch(body, kind)
    if kind != JSON_PATCH and not isinstance(patch, dict):
        raise bad_request("error decoding patch: it is no object")

    def change(obj: Object) -> Object:
        before = presented(resource, obj)
        if kind == JSON_PATCH:
            then = json_patch(before, patch)
        elif kind == MERGE_PATCH:
            then = merge_patch(before, patch)
        else:
            then = strategic_merge(before, patch, resource.shape)
        return _accepted(then, duplicates, request, options)

    return change


def applied(body: bytes, content_type: str, request: ApiRequest, options: WriteOptions) -> Change:
    """The change that a server-side apply makes to an object (an empty one if none is stored).

    Raises:
        ApiError: the configuration cannot be read or does not fit the URL.
    """
    target, resource = request.target, request.target.resource
    config = _configuration(body, content_type, request, options)
    meta = config["metadata"]
    if resource.namespaced:
        meta.setdefault("namespace", target.namespace)

    def change(current: Object) -> Object:
        then = managed.apply(
            current or None,
            config,
            manager=options.field_manager,
            force=options.force,
            subresource=target.subresource,
            api_version=resource.api_version,
            shape=resource.shape,
            now=request.now,
            reset=reset_of(target),
        )
        if not resource.is_custom:
            decoding.check_types(then, resource.shape)
            decoding.normalize(then, resource.shape)
        for name in ("uid", "resourceVersion"):
            if meta.get(name):
                then["metadata"][name] = meta[name]
        return then

    return change


def _configuration(body: bytes, content_type: str, request: ApiRequest, options: WriteOptions) -> Object:
    """The applied configuration, checked to be an object of the resource.

    Raises:
        ApiError: it is none.
    """
    config, duplicates = decoding.parse_patch(body, content_type)
    if not isinstance(config, dict):
        raise bad_request("the applied configuration is no object")
    if not config.get("kind") or not config.get("apiVersion"):
        raise bad_request(f"invalid object type: /, Kind={config.get('kind', '')}")
    _check_kind(config, request, options)
    if duplicates:
        raise bad_request(f"error decoding YAML: {decoding.strict_message([], duplicates)}")
    if not isinstance(config.setdefault("metadata", {}), dict):
        raise internal("failed to create typed patch object: .metadata: expected map")
    return config


def _accepted(obj: Object, duplicates: list[str], request: ApiRequest, options: WriteOptions) -> Object:
    resource = request.target.resource
    try:
        decoding.check_depth(obj)
        _check_kind_kept(obj, request)
        _check_types(obj, request)
    except ApiError as error:
        raise unprocessable("", "", "", [invalid("patch", "", error.message)]) from error
    unknown = decoding.prune(obj, resource.shape)
    if not resource.is_custom:
        decoding.normalize(obj, resource.shape)
    if options.field_validation == "Strict" and (unknown or duplicates):
        message = decoding.strict_message(unknown, duplicates)
        raise unprocessable("", "", "", [invalid("patch", "", message)])
    if options.field_validation == "Warn":
        texts = decoding.warning_texts(unknown, duplicates)
        request.warnings.extend(text for text in texts if text not in request.warnings)
    return obj


def _check_types(obj: Object, request: ApiRequest) -> None:
    """Check all fields of a built-in type, but only the metadata of a custom resource, which has a schema."""
    if request.target.resource.is_custom:
        decoding.check_types(obj, _TYPED_HEAD)
        if obj.get("metadata", obj) is None:
            del obj["metadata"]
    else:
        decoding.check_types(obj, _shape_of(request))


def _check_kind(obj: Object, request: ApiRequest, options: WriteOptions) -> None:
    resource, subresource = request.target.resource, _body_type(request)
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    expected_kind, expected_version = subresource or (resource.kind, resource.api_version)
    if resource.is_custom and not subresource:
        if not kind or not isinstance(kind, str):
            message = f"the object provided is unrecognized (must be of type {expected_kind}): Object 'Kind' is missing"
            raise bad_request(message)
        if api_version != expected_version:
            _warn_of_everything(obj, request, options)
            raise _version_differs(api_version, expected_version)
        if kind != expected_kind:
            name = (obj.get("metadata") or {}).get("name", "")
            raise unprocessable(resource.group, kind, name, [invalid("kind", kind, f"must be {expected_kind}")])
    elif kind and kind != expected_kind:
        message = f"{kind} in version {api_version!r} cannot be handled as a {expected_kind}: no kind match"
        raise bad_request(message)
    elif api_version and api_version != expected_version and (expected_kind, api_version) not in _ALSO_READ:
        raise _version_differs(api_version, expected_version)


def _check_kind_kept(obj: Object, request: ApiRequest) -> None:
    """Refuse a patch that changes the kind of an object."""
    resource = request.target.resource
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    if api_version != resource.api_version:
        raise _version_differs(api_version, resource.api_version)
    if kind != resource.kind:
        raise bad_request(f"no kind {kind!r} is known here, only {resource.kind}")


def _version_differs(given: object, expected: str) -> ApiError:
    message = f"the API version in the data ({given}) does not match the expected API version ({expected})"
    return bad_request(message)


def _warn_of_everything(obj: Object, request: ApiRequest, options: WriteOptions) -> None:
    if options.field_validation == "Warn":
        unknown = decoding.prune(dict(obj), _HEAD)
        request.warnings.extend(decoding.warning_texts(unknown, []))


def _body_type(request: ApiRequest) -> tuple[str, str] | None:
    """Kind and apiVersion of a subresource whose body has a type of its own; None for others."""
    subresource = request.target.resource.subresource(request.target.subresource)
    if subresource is None or subresource.kind == request.target.resource.kind:
        return None
    group, version = subresource.group, subresource.version
    api_version = f"{group}/{version}" if group else version or request.target.resource.api_version
    return subresource.kind, api_version


def _shape_of(request: ApiRequest) -> Shape:
    return ANYTHING if _body_type(request) else request.target.resource.shape
