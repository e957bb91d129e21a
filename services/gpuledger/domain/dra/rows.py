"""The rows of the `availability` projection: slices, claims, allocations and the history of pools."""

from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.api.conditions import FALSE, TRUE, UNKNOWN
from gpuledger.domain.histories import DEVICE_ALLOCATIONS, POOL_AVAILABILITY
from gpuledger.domain.table import TableSpec

UNDECIDED: Final = "PoolIncomplete"
"""The reason of a condition of which nobody can tell whether it holds before the pool is complete."""


class ResourceSlice(NamedTuple):
    """A slice; `payload` is its `slice.published` as JSON. `node` is None where it names no single node."""

    name: str
    uid: str
    driver: str
    pool: str
    node: str | None
    generation: int
    pool_generation: int
    expected_slices: int
    devices: int
    published_at: datetime
    payload: str


class ResourceClaim(NamedTuple):
    """A claim; `phase` is Pending or Allocated, since `since`, and `payload` its last event as JSON."""

    claim: str
    uid: str
    phase: str
    owner: str | None
    requests: int
    devices: int
    since: datetime
    payload: str


class DeviceAllocation(NamedTuple):
    """A device that a claim had from `valid_from` to `valid_to`; `share` is empty where it had the device alone.

    `consumed` is a JSON object of quantities, and empty where nothing was recorded.
    """

    claim: str
    uid: str
    driver: str
    pool: str
    device: str
    request: str
    share: str
    valid_from: datetime
    valid_to: datetime | None
    admin_access: bool
    consumed: str


class DeviceClass(NamedTuple):
    """A DeviceClass; `payload` is its definition as JSON."""

    name: str
    payload: str


class DeviceTaintRule(NamedTuple):
    """A DeviceTaintRule; `payload` is its event as JSON."""

    name: str
    payload: str


class NodeLabels(NamedTuple):
    """A node's labels, as a JSON object."""

    node: str
    labels: str


class SlicePoolCondition(NamedTuple):
    """A condition of a pool from a node's view, or from the whole cluster's where `node` is empty.

    `status` is whether nothing speaks against it; with the reason UNDECIDED that does not mean that it holds.
    """

    driver: str
    pool: str
    node: str
    type: str
    status: bool
    reason: str
    message: str
    changed_at: datetime

    @property
    def shown_status(self) -> str:
        """The status as a Kubernetes condition has it."""
        if self.reason == UNDECIDED:
            return UNKNOWN
        return TRUE if self.status else FALSE


class PoolAvailability(NamedTuple):
    """How many devices of one view of a pool were in which state, from `valid_from` to `valid_to`.

    `valid` is whether the slices that were there did not contradict each other. `allocated` counts devices that
    somebody had at least a share of; `partial` those of them with something left.
    """

    driver: str
    pool: str
    node: str
    valid_from: datetime
    valid_to: datetime | None
    generation: int
    complete: bool
    valid: bool
    total: int
    allocated: int
    available: int
    partial: int
    unavailable: int


SLICE: TableSpec[ResourceSlice] = TableSpec("resource_slice", ResourceSlice, ("name",))
CLAIM: TableSpec[ResourceClaim] = TableSpec("resource_claim", ResourceClaim, ("claim",))
ALLOCATION: TableSpec[DeviceAllocation] = TableSpec(
    "device_allocation", DeviceAllocation,
    ("claim", "uid", "driver", "pool", "device", "request", "share", "valid_from"), retires=("valid_to",),
    history=DEVICE_ALLOCATIONS.name, by_month="valid_from",
)  # fmt: skip
DEVICE_CLASS: TableSpec[DeviceClass] = TableSpec("device_class", DeviceClass, ("name",))
TAINT_RULE: TableSpec[DeviceTaintRule] = TableSpec("device_taint_rule", DeviceTaintRule, ("name",))
NODE_LABELS: TableSpec[NodeLabels] = TableSpec("node_labels", NodeLabels, ("node",))
CONDITION: TableSpec[SlicePoolCondition] = TableSpec(
    "pool_condition", SlicePoolCondition, ("driver", "pool", "node", "type")
)
AVAILABILITY: TableSpec[PoolAvailability] = TableSpec(
    "pool_availability",
    PoolAvailability,
    ("driver", "pool", "node", "valid_from"),
    retires=("valid_to",),
    history=POOL_AVAILABILITY.name,
    by_month="valid_from",
)
SPECS = (SLICE, CLAIM, ALLOCATION, DEVICE_CLASS, TAINT_RULE, NODE_LABELS, CONDITION, AVAILABILITY)
