"""Gets and lists objects: selectors, pages of a consistent snapshot, and the form that clients see."""

import base64
import binascii
from bisect import bisect_right
from typing import NamedTuple

import orjson

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import ApiError, bad_request
from gpuledger.local.kubeapi.options import ListOptions, revision_of
from gpuledger.local.kubeapi.registry import Target
from gpuledger.local.kubeapi.resources import ServedResource
from gpuledger.local.kubeapi.selectors import FieldSelector, LabelMatcher
from gpuledger.local.kubeapi.store import ObjectKey, Store, key_of

_FORMAT = "meta.k8s.io/v1"


class ListSelection(NamedTuple):
    """The objects of a resource that a list or a watch selects."""

    namespace: str | None
    name: str
    labels: LabelMatcher
    fields: FieldSelector
    is_restricted: bool

    @property
    def selects(self) -> bool:
        """Whether it may exclude objects."""
        return bool(self.name) or self.is_restricted

    def matches(self, obj: Object) -> bool:
        """Whether it selects the object, whatever its namespace."""
        if self.name and obj["metadata"]["name"] != self.name:
            return False
        return not self.is_restricted or (
            self.labels.matches(obj["metadata"].get("labels") or {}) and self.fields.matches(obj)
        )


def selection(target: Target, options: ListOptions) -> ListSelection:
    """Read the selectors.

    Raises:
        ApiError: 400, a selector does not parse.
    """
    labels = LabelMatcher.parse(options.labels)
    fields = FieldSelector.parse(options.fields, target.resource)
    return ListSelection(target.selects_namespace, target.name, labels, fields, bool(options.labels or options.fields))


class ListPage(NamedTuple):
    """A part of a list, with the list's own metadata."""

    objects: list[Object]
    metadata: Object


def list_page(store: Store, target: Target, options: ListOptions) -> ListPage:
    """The selected objects; as with a cache, a limit has no effect if any revision will do.

    Raises:
        ApiError: an option is invalid, or the continued snapshot is gone (410).
    """
    chosen = selection(target, options)
    revision, after = _snapshot(store, options)
    collection = store.collection(target.resource.key)
    limit = 0 if options.resource_version == "0" else options.limit
    everything = (collection.snapshot if limit else collection.objects_at)(revision, chosen.namespace)
    start = 0 if after is None else bisect_right(everything, after, key=key_of)
    left = list(filter(chosen.matches, everything[start:])) if chosen.selects else everything[start:]
    metadata: Object = {"resourceVersion": str(revision)}
    if not limit or len(left) <= limit:
        return ListPage(left, metadata)
    page = left[:limit]
    metadata["continue"] = _token(revision, key_of(page[-1]))
    if not chosen.is_restricted:
        metadata["remainingItemCount"] = len(left) - len(page)
    return ListPage(page, metadata)


def presented(resource: ServedResource, obj: Object) -> Object:
    """An object as clients see it, with kind and apiVersion of the requested version."""
    return {"kind": resource.kind, "apiVersion": resource.api_version} | {
        key: value for key, value in resource.read(obj).items() if key not in {"kind", "apiVersion"}
    }


def presented_list(resource: ServedResource, page: ListPage) -> Object:
    """A list; items of built-in types have no kind and apiVersion."""
    if resource.is_custom:
        items = [presented(resource, obj) for obj in page.objects]
    else:
        items = [
            {key: value for key, value in resource.read(obj).items() if key not in {"kind", "apiVersion"}}
            for obj in page.objects
        ]
    return {
        "kind": resource.kind_of_list,
        "apiVersion": resource.api_version,
        "metadata": page.metadata,
        "items": items,
    }


def too_large(revision: int, now: int) -> ApiError:
    """The revision lies in the future."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    details: Object = {"causes": causes, "retryAfterSeconds": 1}
    message = f"Too large resource version: {revision}, current: {now}"
    return ApiError(504, "Timeout", message, details, retry_after_s=1)


def _snapshot(store: Store, options: ListOptions) -> tuple[int, ObjectKey | None]:
    if options.continue_token:
        return _read_token(options.continue_token)
    revision = revision_of(options)
    if revision > store.revision:
        raise too_large(revision, store.revision)
    is_exact = options.match == "Exact" or (not options.match and options.limit and revision)
    return (revision if is_exact else store.revision), None


def _token(revision: int, last: ObjectKey) -> str:
    token = {"v": _FORMAT, "rv": revision, "start": "/".join(last)}
    return base64.urlsafe_b64encode(orjson.dumps(token)).decode().rstrip("=")


def _read_token(text: str) -> tuple[int, ObjectKey]:
    try:
        token = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if token["v"] != _FORMAT:
            raise bad_request("invalid continue token: unrecognized version")
        namespace, _, name = token["start"].partition("/")
        return int(token["rv"]), (namespace, name)
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
