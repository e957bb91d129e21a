"""Sections that the pages of several kinds share: conditions, Events, holders, preparation and assignment."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from gpuledger.api.phases import AssignmentPhase, DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page
from gpuledger.cli.times import format_time
from gpuledger.domain.bootstrap.state import GPU_DEVICE_STATE, GPU_NODE_PHASE, NodePhase, PreparedDevice
from gpuledger.domain.inventory.state import GpuDevice
from gpuledger.domain.pools.pools import GPU_DEVICE_ASSIGNMENT, Assignment
from gpuledger.domain.workloads.allocations import ALLOCATION, HISTORY
from gpuledger.tools.cluster import KubeEvent
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.rows import row_of, rows_where

ROWS_SHOWN = 20
"""Rows of a page's table; the newest come first, and `get` or `sql` show all."""

FORMER_SHOWN: Final = 5
"""Containers that had a device last; `gpuledger report container-allocations` shows all of them."""

CONDITIONS = (
    Column("Type", "type"),
    Column("Status", "status"),
    Column("Reason", "reason"),
    Column("Since", "lastTransitionTime"),
    Column("Message", "message"),
)
FAILURES = (
    Column("Failed", "failed_at"),
    Column("Kind", "kind"),
    Column("Device", "device"),
    Column("Slot", "slot"),
    Column("Message", "message"),
)
INCIDENTS = (
    Column("Incident", "incident"),
    Column("Check", "check_name"),
    Column("Entity", "entity"),
    Column("Fatal", "fatal"),
    Column("Codes", "codes"),
    Column("Opened", "opened_at"),
    Column("Ended", "ended_at"),
    Column("Cause", "last_cause"),
)
EVENTS = (
    Column("Last seen", "time"),
    Column("Times", "times"),
    Column("Type", "type"),
    Column("Reason", "reason"),
    Column("Object", "about"),
    Column("From", "reporter"),
    Column("Message", "message"),
)
_CONTAINER = (
    Column("Namespace", "namespace"),
    Column("Pod", "pod"),
    Column("Container", "container"),
    Column("Resource", "resource"),
    Column("Claim", "claim"),
    Column("Device", "device"),
    Column("Slice", "slice"),
)
HOLDERS = (*_CONTAINER, Column("Since", "since"))
FORMER = (*_CONTAINER, Column("From", "valid_from"), Column("To", "valid_to"))


class Holders(NamedTuple):
    """The containers that have a device now, and those that had it before, the latest first."""

    now: list[RowDict]
    before: list[RowDict]


class Decided(NamedTuple):
    """The decisions about one GPUDevice: how far it is prepared, and its pool; None where there is no decision yet."""

    prepared: PreparedDevice | None = None
    assignment: Assignment | None = None

    @property
    def phase(self) -> str | None:
        """The phase of its assignment; None where it belongs to no pool."""
        return None if self.assignment is None else self.assignment.phase

    @property
    def why(self) -> str | None:
        """Why the device is faulted, else the reason of its assignment; None where there is neither."""
        if self.prepared is not None and self.prepared.state == DeviceState.FAULTED:
            return self.prepared.reason
        return None if self.assignment is None else self.assignment.reason


UNDECIDED = Decided()

RELEASE: Final = (
    "the node's agent, which first lets pass what the kubelet may still be starting with a unit of the card (half a "
    "minute, even if nothing uses it), and then reports the card released once no container has a unit"
)
"""Why a card that nothing uses leaves its pool only after a while."""

SET_UP: Final = (
    "the node's agent, which gets its orders from the ledger, sets the card up and reports it; if this stays so, see "
    "whether the agent is ready (`gpuledger describe node`), and whether it reports a refusal"
)
"""What a card waits for that has a pool and is not Assigned yet."""

WAITS_FOR: Final = {AssignmentPhase.PENDING.value: SET_UP, AssignmentPhase.UNASSIGNING.value: RELEASE}


async def holders_of(connection: AsyncConnection[Any], devices: Sequence[str]) -> Holders:
    """The current and former holders of a device with these ids."""
    ids = {"device": list(devices)}
    ended = await rows_where(connection, HISTORY, ids, newest=["valid_to"], limit=FORMER_SHOWN)
    return Holders(
        await rows_where(connection, ALLOCATION, ids, newest=["since"]),
        [row for row in ended if row["valid_to"] is not None],
    )


async def decisions_on(connection: AsyncConnection[Any], names: Sequence[str]) -> dict[str, Decided]:
    """The decisions about these GPUDevices, by name; a device without any is left out."""
    states = await rows_where(connection, GPU_DEVICE_STATE, {"name": list(names)})
    held = await rows_where(connection, GPU_DEVICE_ASSIGNMENT, {"device": list(names)})
    prepared = {str(row["name"]): row_of(GPU_DEVICE_STATE, row) for row in states}
    assigned = {str(row["device"]): row_of(GPU_DEVICE_ASSIGNMENT, row) for row in held}
    return {name: Decided(prepared.get(name), assigned.get(name)) for name in prepared.keys() | assigned.keys()}


async def phase_of(connection: AsyncConnection[Any], node: str) -> NodePhase | None:
    """The phase of a node's preparation; None where it has none."""
    rows = await rows_where(connection, GPU_NODE_PHASE, {"node": node})
    return row_of(GPU_NODE_PHASE, rows[0]) if rows else None


def conditions_of(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The conditions of a status, by type."""
    return sorted(status.get("conditions") or (), key=lambda condition: str(condition.get("type")))


def pool_of_status(status: Mapping[str, Any]) -> str | None:
    """The id of the pool in a GPUDevice's status; None where it has none."""
    reference = status.get("poolRef") or {}
    return PoolRef(reference.get("name") or "", reference.get("namespace") or "").id or None


def counted(rows: Sequence[object]) -> str:
    """The part of a title with the number of rows, where not all are shown."""
    return f" ({ROWS_SHOWN} of {len(rows)})" if len(rows) > ROWS_SHOWN else ""


def present(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def events_section(page: Page, events: Sequence[KubeEvent] | None, problem: str) -> None:
    """The last Events of Kubernetes, or why there are none to show."""
    if events is None:
        page.line("Events", f"Kubernetes was not asked: {problem}")
        return
    shown = [{**event._asdict(), "time": format_time(event.time)} for event in events[-ROWS_SHOWN:]]
    page.table(f"Events{counted(events)}", shown, EVENTS)


def holders_section(page: Page, holders: Holders) -> None:
    """The current and the last holders of the device."""
    page.table(f"Held by{counted(holders.now)}", holders.now[:ROWS_SHOWN], HOLDERS)
    page.table("Held last by", holders.before, FORMER)


def preparation_section(page: Page, row: GpuDevice, decided: Decided) -> None:
    """The state of the device's preparation, its reason and time."""
    prepared = decided.prepared or PreparedDevice(row.name, row.state, "", "", row.detected_at)
    fields = {
        "State": prepared.state,
        "Reason": prepared.reason or None,
        "Message": prepared.message or None,
        "Since": prepared.changed_at,
    }
    page.fields(present(fields), title="Preparation")


def assignment_section(page: Page, assignment: Assignment | None) -> None:
    """The pool of the device, and the phase, reason and time of the assignment."""
    if assignment is None:
        page.fields({}, title="Assignment")
        return
    fields = {
        "Pool": assignment.pool or "<none>",
        "Phase": assignment.phase,
        "Automatic": True if assignment.automatic else None,
        "Reason": assignment.reason,
        "Message": assignment.message or None,
        "Since": assignment.changed_at,
        "Waits for": WAITS_FOR.get(assignment.phase or ""),
    }
    page.fields(present(fields), title="Assignment")
