"""What pages say of how far GPUs are prepared and which pools they belong to, as bootstrap and pools decided it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from gpuledger.api.phases import DeviceState
from gpuledger.cli.describe.sections import known
from gpuledger.cli.render.page import Page
from gpuledger.domain.bootstrap.state import GPU_DEVICE_STATE, GPU_NODE_PHASE, NodePhase, PreparedDevice
from gpuledger.domain.inventory.state import GpuDevice
from gpuledger.domain.pools.pools import GPU_DEVICE_ASSIGNMENT, Assignment
from gpuledger.tools.queries.rows import row_of, rows_where


class Decided(NamedTuple):
    """How far one GPUDevice is prepared, and which pool it belongs to; None where nothing was decided yet."""

    prepared: PreparedDevice | None = None
    assignment: Assignment | None = None

    @property
    def phase(self) -> str | None:
        """How far its assignment is; None where it belongs to no pool."""
        return None if self.assignment is None else self.assignment.phase

    @property
    def why(self) -> str | None:
        """Why the device is faulted, else why it stands with pools as it does; None where nothing was decided."""
        if self.prepared is not None and self.prepared.state == DeviceState.FAULTED:
            return self.prepared.reason
        return None if self.assignment is None else self.assignment.reason


UNDECIDED = Decided()


async def decided_of(connection: AsyncConnection[Any], names: Sequence[str]) -> dict[str, Decided]:
    """What was decided of these GPUDevices, by name; those of which nothing was are left out."""
    states = await rows_where(connection, GPU_DEVICE_STATE, {"name": list(names)})
    held = await rows_where(connection, GPU_DEVICE_ASSIGNMENT, {"device": list(names)})
    prepared = {str(row["name"]): row_of(GPU_DEVICE_STATE, row) for row in states}
    assigned = {str(row["device"]): row_of(GPU_DEVICE_ASSIGNMENT, row) for row in held}
    return {name: Decided(prepared.get(name), assigned.get(name)) for name in prepared.keys() | assigned.keys()}


async def phase_of(connection: AsyncConnection[Any], node: str) -> NodePhase | None:
    """The phase of a node's preparation; None where it has none."""
    rows = await rows_where(connection, GPU_NODE_PHASE, {"node": node})
    return row_of(GPU_NODE_PHASE, rows[0]) if rows else None


def preparation_section(page: Page, row: GpuDevice, decided: Decided) -> None:
    """How far the device is prepared, why, and since when."""
    prepared = decided.prepared or PreparedDevice(row.name, row.state, "", "", row.detected_at)
    fields = {
        "State": prepared.state,
        "Reason": prepared.reason or None,
        "Message": prepared.message or None,
        "Since": prepared.changed_at,
    }
    page.fields(known(fields), title="Preparation")


def assignment_section(page: Page, assignment: Assignment | None) -> None:
    """Which pool the device belongs to, how far that is, why, and since when."""
    if assignment is None:
        page.fields({}, title="Assignment")
        return
    fields = {
        "Pool": assignment.pool or "<none>",
        "Phase": assignment.phase,
        "Taken by itself": True if assignment.automatic else None,
        "Reason": assignment.reason,
        "Message": assignment.message or None,
        "Since": assignment.changed_at,
    }
    page.fields(known(fields), title="Assignment")
