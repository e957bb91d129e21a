"""Defines what a resource is: its names and its `Strategy`, the hooks in which one resource differs from others.

The request pipeline is the same for every resource. Hooks have the names that they have in Kubernetes' own API server.
A strategy gets copies that it may change, never stored objects.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gpuledger.edge.kube.schema.causes import Cause, Object
from gpuledger.edge.kube.schema.object_names import dns_subdomain_problem
from gpuledger.edge.kube.schema.shapes import ANYTHING, Shape

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def timestamp(now: datetime, later_s: int = 0) -> str:
    """A time as Kubernetes writes it, to the second."""
    return (now + timedelta(seconds=later_s)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class TableColumn(NamedTuple):
    """A column of a Table. `path` is a JSONPath of a CRD; built-in types compute their cells in `Strategy.cells`."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    path: str = ""


class Context(NamedTuple):
    """The part of a request that strategies see: time, user and a list for `Warning` headers."""

    now: datetime
    user: str
    warnings: list[str]


class Strategy:
    """The behaviour of an ordinary resource; subclasses override the differences."""

    creates_on_update = False
    """Whether PUT of an absent object creates it."""

    updates_unconditionally = True
    """Whether PUT may leave out the resourceVersion (otherwise 422, `metadata.resourceVersion` FieldValueInvalid)."""

    has_generation = True
    is_graceful = False
    """Whether watchers see the start of every deletion, even with a grace period of 0 (pods)."""

    answers_deleted_object = False
    """Whether DELETE answers the object rather than a Status."""

    def default(self, obj: Object) -> None:
        """Fill in defaults, on every write."""

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Prepare a new object: drop its status, add the fields of a new object."""

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Keep the fields that this endpoint does not write. The pipeline handles metadata."""

    def validate(self, obj: Object) -> list[Cause]:
        """Everything wrong with a new object, except for metadata, which the pipeline checks."""
        return []

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """Everything wrong with an object that replaces `old`, including what `validate` finds."""
        return self.validate(obj) if not subresource else []

    def validate_name(self, name: str) -> str | None:
        """Why a name is invalid; None accepts it. Names are DNS subdomains by default."""
        return dns_subdomain_problem(name)

    def spec_changed(self, obj: Object, old: Object) -> bool:
        """Whether anything but metadata and status differs, so that generation grows."""
        outside = ("metadata", "status", "kind", "apiVersion")
        one = {key: value for key, value in obj.items() if key not in outside}
        return one != {key: value for key, value in old.items() if key not in outside}

    def grace_s(self, obj: Object, requested: int | None) -> int:
        """The grace period of a deletion in seconds; 0 removes the object at once."""
        return 0

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """The values for field selectors, besides metadata.name and metadata.namespace; always all supported names."""
        return {}

    def columns(self) -> Sequence[TableColumn]:
        """The columns of a Table, Name first."""
        return (TableColumn("Name", format="name"), TableColumn("Created At", "date"))

    def cells(self, obj: Object, now: datetime) -> list[object]:
        """The cells of one row, in the order of the columns."""
        metadata = obj["metadata"]
        return [metadata["name"], metadata.get("creationTimestamp")]


@dataclass(frozen=True)
class Subresource:
    """A part of a resource with an endpoint of its own. `kind` is what discovery says; `verbs` what it takes."""

    name: str
    verbs: tuple[str, ...]
    kind: str
    group: str = ""
    version: str = ""


@dataclass(frozen=True)
class Form:
    """The conversion of a resource whose objects are stored as those of another."""

    key: tuple[str, str]
    read: Callable[[Object], Object]
    stored: Callable[[Object], Object]


@dataclass(frozen=True)
class ServedResource:
    """One version of a resource. Objects of all versions lie together under (`group`, `plural`)."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    shape: Shape = field(default_factory=lambda: ANYTHING)
    strategy: Strategy = field(default_factory=Strategy)
    list_kind: str = ""
    is_custom: bool = False
    form: "Form | None" = None
    lacks: tuple[str, ...] = ()
    """Subresources that Kubernetes has and this server answers with 501."""

    @property
    def key(self) -> tuple[str, str]:
        """The key of its objects in the store, and its name in errors."""
        return self.form.key if self.form else (self.group, self.plural)

    def read(self, stored: Object) -> Object:
        """An object as this resource has it."""
        return self.form.read(stored) if self.form else stored

    def stored(self, obj: Object) -> Object:
        """An object as the store has it."""
        return self.form.stored(obj) if self.form else obj

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def kind_of_list(self) -> str:
        """The kind of its lists."""
        return self.list_kind or f"{self.kind}List"

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name."""
        return next((one for one in self.subresources if one.name == name), None)
