"""Reads and checks the query options of requests as Kubernetes does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden, invalid, not_supported, required, too_long
from gpuledger.local.kubeapi.errors import bad_request, internal, unprocessable

FIELD_MANAGER_MAX = 128
REVISION_DIGITS_MAX = 19
LEAST_GRACE_S = 1
"""The meaning of a negative grace period."""

UNKNOWN_AGENT = "unknown"

META_GROUP = "meta.k8s.io"
FALSE = frozenset({"0", "false"})
FIELD_VALIDATIONS = ("Ignore", "Warn", "Strict")
PROPAGATIONS = ("Orphan", "Background", "Foreground")


@dataclass(frozen=True)
class WriteOptions:
    """Options of a create, an update or a patch. `field_manager` is never empty; only an apply uses `force`."""

    dry_run: bool = False
    field_manager: str = UNKNOWN_AGENT
    field_validation: str = "Warn"
    force: bool = False
    is_named: bool = False
    """Whether the request named its field manager."""


@dataclass(frozen=True)
class DeleteOptions:
    """Options of a delete. `grace_s` is None if unset."""

    dry_run: bool = False
    grace_s: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""


@dataclass(frozen=True)
class ListOptions:
    """Options of a list or a watch."""

    labels: str = ""
    fields: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""
    timeout_s: int | None = None
    watches: bool = False
    bookmarks: bool = False
    initial_events: bool | None = None


@dataclass
class Query:
    """A query string; of repeated parameters all values."""

    values: Mapping[str, list[str]] = field(default_factory=dict)

    def first(self, name: str) -> str:
        """The first value of a parameter, empty where there is none."""
        return next(iter(self.values.get(name, ())), "")

    def flag(self, name: str) -> bool | None:
        """A boolean parameter, true unless it is `0` or `false`; None if it is absent."""
        return self.first(name) not in FALSE if name in self.values else None

    def number(self, name: str) -> int | None:
        """An integer parameter; None where there is none."""
        text = self.first(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError as error:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def write_options(query: Query, user_agent: str, kind: str) -> WriteOptions:
    """The options of a write; `kind` is CreateOptions, UpdateOptions or PatchOptions.

    Raises:
        ApiError: 422, an option is not acceptable.
    """
    manager, validation, dry_run = query.first("fieldManager"), query.first("fieldValidation"), _dry_run(query)
    causes = dry_run_causes(query.values.get("dryRun", []))
    if len(manager) > FIELD_MANAGER_MAX:
        causes.append(too_long("fieldManager", FIELD_MANAGER_MAX))
    elif not manager.isprintable():
        causes.append(invalid("fieldManager", manager, "should not contain non-printable characters"))
    if validation and validation not in FIELD_VALIDATIONS:
        causes.append(not_supported("fieldValidation", validation, ("", *FIELD_VALIDATIONS)))
    if causes:
        raise unprocessable(META_GROUP, kind, "", causes)
    named = manager or user_agent.partition("/")[0] or UNKNOWN_AGENT
    return WriteOptions(dry_run, named, validation or "Warn", query.flag("force") or False, bool(manager))


def require_manager(options: WriteOptions) -> None:
    """Check that an apply names its field manager.

    Raises:
        ApiError: 422, it does not.
    """
    if not options.is_named:
        cause = required("fieldManager", "is required for apply patch")
        raise unprocessable(META_GROUP, "PatchOptions", "", [cause])


def refuse_force(query: Query) -> None:
    """Refuse `force` on patches other than applies.

    Raises:
        ApiError: 422.
    """
    if query.flag("force") is not None:
        cause = forbidden("force", "may not be specified for non-apply patch")
        raise unprocessable(META_GROUP, "PatchOptions", "", [cause])


def delete_options(query: Query, body: Object) -> DeleteOptions:
    """The options of a delete, from its body or else from the query.

    Raises:
        ApiError: 400 or 422, an option is not acceptable.
    """
    given = body or _delete_query(query)
    dry = given.get("dryRun") or []
    propagation, orphan = given.get("propagationPolicy"), given.get("orphanDependents")
    grace = given.get("gracePeriodSeconds")
    causes = dry_run_causes(dry)
    if propagation and propagation not in PROPAGATIONS:
        causes.append(not_supported("propagationPolicy", propagation, (*PROPAGATIONS, "nil")))
    if propagation and orphan is not None:
        message = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(invalid("propagationPolicy", propagation, message))
    if causes:
        raise unprocessable(META_GROUP, "DeleteOptions", "", causes)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    preconditions: dict[str, Any] = given.get("preconditions") or {}
    grace = LEAST_GRACE_S if grace is not None and grace < 0 else grace
    return DeleteOptions(
        bool(dry), grace, propagation or "", preconditions.get("uid") or "", preconditions.get("resourceVersion") or ""
    )


def list_options(query: Query) -> ListOptions:
    """The options of a list or a watch.

    Raises:
        ApiError: 400, 422 or (for a watch, as Kubernetes does) 500, an option is not acceptable.
    """
    options = ListOptions(
        labels=query.first("labelSelector"),
        fields=query.first("fieldSelector"),
        limit=max(query.number("limit") or 0, 0),
        continue_token=query.first("continue"),
        resource_version=query.first("resourceVersion"),
        match=query.first("resourceVersionMatch"),
        timeout_s=query.number("timeoutSeconds"),
        watches=query.flag("watch") or False,
        bookmarks=query.flag("allowWatchBookmarks") or False,
        initial_events=query.flag("sendInitialEvents"),
    )
    causes = _watch_causes(options) if options.watches else _list_causes(options)
    if causes:
        raise unprocessable(META_GROUP, "ListOptions", "", causes)
    if options.continue_token and options.resource_version not in {"", "0"}:
        raise bad_request("specifying resource version is not allowed when using continue")
    return options


def revision_of(options: ListOptions) -> int:
    """The resourceVersion as a number, 0 by default.

    Raises:
        ApiError: it is no number: 400, but 500 for a watch, as Kubernetes does.
    """
    text = options.resource_version or "0"
    if (number := _revision(text)) is not None:
        return number
    message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    raise internal(message) if options.watches else bad_request(f"invalid resource version: {message}")


def least_revision(query: Query) -> int:
    """The oldest acceptable revision of a read.

    Raises:
        ApiError: 500, as Kubernetes does, if it is no number.
    """
    text = query.first("resourceVersion") or "0"
    if (number := _revision(text)) is not None:
        return number
    raise internal(f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')


def _revision(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= REVISION_DIGITS_MAX else None


def dry_run_causes(values: list[str]) -> list[Cause]:
    """Everything wrong with the values of `dryRun`."""
    return [not_supported("dryRun", value, ("All",)) for value in values if value != "All"]


def _delete_query(query: Query) -> Object:
    return {
        "dryRun": query.values.get("dryRun", []),
        "propagationPolicy": query.first("propagationPolicy"),
        "gracePeriodSeconds": query.number("gracePeriodSeconds"),
        "orphanDependents": query.flag("orphanDependents"),
    }


def _dry_run(query: Query) -> bool:
    return "All" in query.values.get("dryRun", [])


def _list_causes(options: ListOptions) -> list[Cause]:
    name = "resourceVersionMatch"
    causes = []
    if options.initial_events is not None:
        causes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if not options.match:
        return causes
    if not options.resource_version:
        causes.append(forbidden(name, f"{name} is forbidden unless resourceVersion is provided"))
    elif options.continue_token:
        causes.append(forbidden(name, f"{name} is forbidden when continue is provided"))
    elif options.match not in {"Exact", "NotOlderThan"}:
        causes.append(not_supported(name, options.match, ("Exact", "NotOlderThan", "")))
    elif options.match == "Exact" and options.resource_version == "0":
        causes.append(forbidden(name, f'{name} "exact" is forbidden for resourceVersion "0"'))
    return causes


def _watch_causes(options: ListOptions) -> list[Cause]:
    name = "resourceVersionMatch"
    causes = []
    if options.initial_events is None:
        if options.match:
            causes.append(forbidden(name, f"{name} is forbidden for watch unless sendInitialEvents is provided"))
            if options.match != "NotOlderThan":
                causes.append(not_supported(name, options.match, ("NotOlderThan",)))
    elif not options.match:
        causes.append(forbidden(name, f"sendInitialEvents requires setting {name} to NotOlderThan"))
    elif options.match != "NotOlderThan":
        causes.append(not_supported(name, options.match, ("NotOlderThan",)))
    return causes
