"""Computes the cells of `kubectl get` tables for built-in types.

An object that lacks a field shows `<none>` or `<unknown>`; a cell never fails.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.resources import TableColumn
from gpuledger.local.kubeapi.tables_age import UNKNOWN, age_of

NONE = "<none>"
UNSET = "<unset>"
WIDE = 1

Cell = Callable[[Object, datetime], object]

_NAME = TableColumn("Name", format="name")
_NODE_LABEL = "node-role.kubernetes.io/"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


class Cells(NamedTuple):
    """The columns of a type, and what fills them."""

    columns: tuple[TableColumn, ...]
    fill: tuple[Cell, ...]

    def cells(self, obj: Object, now: datetime) -> list[object]:
        """The cells of one object."""
        return [cell(obj, now) for cell in self.fill]


def with_age(*columns: tuple[str, Cell]) -> Cells:
    """Name, then these columns, then the age."""
    return named(*columns, ("Age", age))


def named(*columns: tuple[str, Cell]) -> Cells:
    """Name, then these columns."""
    return called(field("metadata.name"), *columns)


def called(name: Cell, *columns: tuple[str, Cell]) -> Cells:
    """A name that is more than the object's own, then these columns."""
    others = unnamed(*columns)
    return Cells((_NAME, *others.columns), (name, *others.fill))


def unnamed(*columns: tuple[str, Cell]) -> Cells:
    """These columns. Those whose names start with `+` are shown when wide; `#` marks an integer."""
    shown = tuple(_column(name) for name, _ in columns)
    return Cells(shown, tuple(cell for _, cell in columns))


def _column(name: str) -> TableColumn:
    kind = "integer" if "#" in name[:2] else "string"
    return TableColumn(name.lstrip("+#"), kind, priority=WIDE if name.startswith("+") else 0)


def at(obj: Any, path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def field(path: str, default: object = "") -> Cell:
    """A field as it is."""

    def cell(obj: Object, _: datetime) -> object:
        value = at(obj, path)
        return default if value is None or value == "" else value

    return cell


def count(*paths: str) -> Cell:
    """The total number of entries of fields."""

    def cell(obj: Object, _: datetime) -> object:
        return sum(len(at(obj, path) or ()) for path in paths)

    return cell


def ratio(done: str, total: str) -> Cell:
    """Two numbers, as `1/2`."""

    def cell(obj: Object, _: datetime) -> object:
        return f"{at(obj, done) or 0}/{at(obj, total) or 0}"

    return cell


def ago(path: str, default: str = UNKNOWN) -> Cell:
    """The age of a time."""

    def cell(obj: Object, now: datetime) -> object:
        time = at(obj, path)
        return age_of(time, now) if time else default

    return cell


def joined(path: str, default: str = NONE) -> Cell:
    """A list's items, with commas."""

    def cell(obj: Object, _: datetime) -> object:
        return ",".join(str(item) for item in at(obj, path) or ()) or default

    return cell


def age(obj: Object, now: datetime) -> object:
    """The age of the object."""
    return age_of(obj["metadata"].get("creationTimestamp"), now)


def selector(path: str) -> Cell:
    """A map as `a=b,c=d`."""

    def cell(obj: Object, _: datetime) -> object:
        return ",".join(f"{key}={value}" for key, value in sorted((at(obj, path) or {}).items())) or NONE

    return cell


def containers(field: str, path: str = "spec.template.spec.containers") -> Cell:
    """A field of each container, with commas."""

    def cell(obj: Object, _: datetime) -> object:
        return ",".join(container.get(field, "") for container in at(obj, path) or ())

    return cell


def access_modes(path: str) -> Cell:
    """How a volume may be mounted."""

    def cell(obj: Object, _: datetime) -> object:
        return ",".join(_ACCESS_MODES.get(mode, mode) for mode in at(obj, path) or ())

    return cell


def claim_of_volume(obj: Object, _: datetime) -> object:
    """The claim that has the volume."""
    claim = at(obj, "spec.claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def storage_class_name(obj: Object, _: datetime) -> object:
    """A StorageClass's name, and whether it is the default."""
    is_default = (obj["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    return f"{obj['metadata']['name']} (default)" if is_default else obj["metadata"]["name"]


def truth(path: str) -> Cell:
    """A boolean as text."""

    def cell(obj: Object, _: datetime) -> object:
        return "True" if at(obj, path) else "False"

    return cell


def node_status(obj: Object, _: datetime) -> object:
    """Ready or not, and whether pods may be scheduled."""
    conditions = {one.get("type"): one.get("status") for one in at(obj, "status.conditions") or ()}
    ready = conditions.get("Ready")
    states = [] if ready is None else ["Ready" if ready == "True" else "NotReady"]
    if at(obj, "spec.unschedulable"):
        states = [*(states or ["Unknown"]), "SchedulingDisabled"]
    return ",".join(states or ["Unknown"])


def node_roles(obj: Object, _: datetime) -> object:
    """The roles that labels give."""
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    roles = {key.removeprefix(_NODE_LABEL) for key in labels if key.startswith(_NODE_LABEL)}
    roles |= {value for key, value in labels.items() if key == "kubernetes.io/role"}
    return ",".join(sorted(role for role in roles if role)) or NONE


def node_address(kind: str) -> Cell:
    """The address of a type."""

    def cell(obj: Object, _: datetime) -> object:
        addresses: Sequence[Object] = at(obj, "status.addresses") or ()
        return next((one["address"] for one in addresses if one.get("type") == kind), NONE)

    return cell


def ports(obj: Object, _: datetime) -> object:
    """A service's ports."""
    ports = at(obj, "spec.ports") or ()
    return ",".join(_port(port) for port in ports) or NONE


def _port(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def event_object(obj: Object, _: datetime) -> object:
    """The object of an event."""
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def event_seen(obj: Object, now: datetime) -> object:
    """The age of the last occurrence of an event."""
    seen = at(obj, "series.lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime")
    return age_of(seen, now)


def event_text(obj: Object, _: datetime) -> object:
    """The message of an event."""
    return str(obj.get("message") or obj.get("note") or "").strip()


def job_duration(obj: Object, now: datetime) -> object:
    """The duration of a job."""
    start, end = at(obj, "status.startTime"), at(obj, "status.completionTime")
    if not start:
        return ""
    return age_of(start, datetime.fromisoformat(end) if end else now)


def job_state(obj: Object, _: datetime) -> object:
    """The state of a job."""
    for kind in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        for one in at(obj, "status.conditions") or ():
            if one.get("type") == kind and one.get("status") == "True":
                return kind
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else "Running"


def role(obj: Object, _: datetime) -> object:
    """The role of a binding."""
    return f"{at(obj, 'roleRef.kind')}/{at(obj, 'roleRef.name')}"


def claim_state(obj: Object, _: datetime) -> object:
    """The state of a resource claim."""
    states = ["deleted"] if obj["metadata"].get("deletionTimestamp") else []
    states += ["allocated"] if at(obj, "status.allocation") else []
    states += ["reserved"] if at(obj, "status.reservedFor") else []
    return ",".join(states or ["pending"])
