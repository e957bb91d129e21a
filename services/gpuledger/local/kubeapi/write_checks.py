"""Checks a write against the URL and the stored object, and decides when a deleted object is finished. Pure."""

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.errors import ApiError, bad_request, conflict, internal, unprocessable
from gpuledger.local.kubeapi.options import DeleteOptions
from gpuledger.local.kubeapi.registry import Target
from gpuledger.local.kubeapi.resources import ServedResource

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_DROPPED_IF_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields", "generateName")


def without_status(obj: Object) -> Object:
    """The object without its status, for `managedFields`; it shares the metadata."""
    return {name: value for name, value in obj.items() if name != "status"}


def tidy(meta: Object) -> None:
    """Drop empty metadata fields."""
    for name in _DROPPED_IF_EMPTY:
        if name in meta and not meta[name]:
            del meta[name]


def fit_namespace(target: Target, obj: Object) -> None:
    """Give the object the namespace of the URL.

    Raises:
        ApiError: 400, it names another.
    """
    meta = obj["metadata"]
    if not target.resource.namespaced:
        meta.pop("namespace", None)
        return
    if meta.get("namespace") not in {None, "", target.namespace}:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    meta["namespace"] = target.namespace


def fit_url(target: Target, obj: Object) -> None:
    """Check that the object fits the URL.

    Raises:
        ApiError: 400, it is not.
    """
    name = obj.setdefault("metadata", {}).get("name")
    if not name:
        raise bad_request(f"the name of the object ({target.name} based on URL) was undeterminable: it has none")
    if name != target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    fit_namespace(target, obj)


def check_uid(target: Target, obj: Object, old: Object) -> None:
    """Check that a replacement is of the stored object. Of a patch, the validation judges the uid.

    Raises:
        ApiError: 409, it has the uid of another.
    """
    meta, before = obj["metadata"], old["metadata"]
    if meta.get("uid") not in {None, "", before["uid"]}:
        message = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {before['uid']}"
        raise conflict(*target.resource.key, target.name, message)


def check_version(target: Target, obj: Object, old: Object) -> None:
    """Check that an update is based on the stored state.

    Raises:
        ApiError: 409, it is based on another; 422 or 500, the resourceVersion is missing or malformed.
    """
    resource, meta, before = target.resource, obj["metadata"], old["metadata"]
    version = meta.get("resourceVersion") or ""
    if not version or version == "0":
        if not resource.strategy.updates_unconditionally:
            cause = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise unprocessable(resource.group, resource.plural, target.name, [cause])
    elif not (version.isascii() and version.isdigit()):
        raise internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    elif version != before["resourceVersion"]:
        raise stale(target)


def stale(target: Target) -> ApiError:
    """409: the client must read the object again."""
    message = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(*target.resource.key, target.name, message)


def check_preconditions(target: Target, obj: Object, options: DeleteOptions) -> None:
    """Check the preconditions of a deletion.

    Raises:
        ApiError: 409, it is not.
    """
    resource, meta = target.resource, obj["metadata"]
    for word, expected, actual, reason in (
        ("UID", options.uid, meta["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, meta["resourceVersion"], "modified"),
    ):
        if expected and expected != actual:
            message = (
                f"the {word} in the precondition ({expected}) does not match the {word} in record ({actual}). "
                f"The object might have been {reason}"
            )
            raise conflict(resource.group, resource.kind, target.name, message)


def refuse_invalid(resource: ServedResource, obj: Object, causes: list[Cause]) -> None:
    """Refuse an invalid object.

    Raises:
        ApiError: 422, with every cause.
    """
    if causes:
        name = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
        raise unprocessable(resource.key[0], resource.kind, name, causes)


def same_but_time(obj: Object, old: Object) -> bool:
    """Whether only the times of managed fields differ, so that there is nothing to store."""
    if obj == old:
        return True
    meta, before = obj["metadata"], old["metadata"]
    if {**obj, "metadata": None} != {**old, "metadata": None}:
        return False
    if {**meta, "managedFields": None} != {**before, "managedFields": None}:
        return False
    return _timeless(meta.get("managedFields")) == _timeless(before.get("managedFields"))


def _timeless(entries: list[Object] | None) -> list[Object]:
    return [{key: value for key, value in entry.items() if key != "time"} for entry in entries or ()]


def is_finished(obj: Object) -> bool:
    """Whether an object in deletion has no finalizers and no grace period left."""
    meta = obj["metadata"]
    waits = meta.get("finalizers") or obj.get("spec", {}).get("finalizers")
    return bool(meta.get("deletionTimestamp")) and not waits and not meta.get("deletionGracePeriodSeconds")


def finalizers_after(finalizers: list[str], propagation: str) -> list[str]:
    """The finalizers of an object after a deletion with this propagation."""
    kept = [name for name in finalizers if not propagation or name not in {FOREGROUND, ORPHAN}]
    added = {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(propagation, [])
    return kept + added
