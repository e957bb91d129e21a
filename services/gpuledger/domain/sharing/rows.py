"""The rows of shared devices: what nodes share, and which pods hold what of it, now and at any time."""

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.domain.histories import SHARED_ALLOCATIONS
from gpuledger.domain.table import TableSpec
from gpuledger.events.position import ORIGIN, Offset

NO_DEVICES: Final = "[]"
"""The devices of a node that shares none, as JSON."""

NO_ALLOCATION: Final = "{}"
"""The allocation of a pod that holds nothing, as JSON."""


class PodState(StrEnum):
    """How far a pod that asks for shared devices is."""

    WAITING = "waiting"
    RESERVED = "reserved"
    BOUND = "bound"
    RUNNING = "running"
    GONE = "gone"


class SharedNode(NamedTuple):
    """What a node shares since `shared_at`; without `present` it shares nothing, or is gone.

    `devices` and `not_shared` are JSON arrays as in `node.devices-shared`.
    """

    node: str
    present: bool
    model: str | None
    partition_policy: str | None
    devices: str
    not_shared: str
    shared_at: datetime
    position: Offset


class SharedCheckpoints(NamedTuple):
    """The GPUs that containers of a node have without an allocation: a JSON array of pods' UIDs with GPUs' UUIDs."""

    node: str
    checkpoints: str
    observed_at: datetime
    position: Offset


class SharedCheckpointsVersion(NamedTuple):
    """The same from `valid_from` up to, not including, `valid_to`."""

    node: str
    valid_from: datetime
    valid_to: datetime | None
    position: Offset
    checkpoints: str


class SharedPod(NamedTuple):
    """A pod that asks for shared devices or has some. Amounts and allocations are JSON objects as in events.

    `state`, `node`, `allocation` and `differs` follow from the facts below them: what counts now, and whether its
    annotation and the reservation are not the same. Of each kind of fact the latest is there, with its time and its
    position. `over_at` is when it was gone for good. Nothing is `{}`.
    """

    uid: str
    pod: str
    namespace: str
    state: str = PodState.WAITING.value
    node: str | None = None
    allocation: str = NO_ALLOCATION
    differs: bool = False

    scheduler: str | None = None
    priority: int = 0
    requests: str = NO_ALLOCATION
    containers: str = "[]"
    hint: str | None = None
    joint: str | None = None
    partition_spec: str | None = None
    unreadable: str | None = None
    started: bool = False
    observed_node: str | None = None
    annotation: str = NO_ALLOCATION
    first_at: datetime | None = None
    observed_at: datetime | None = None
    observed_position: Offset = ORIGIN

    strategy: str | None = None
    reserved_node: str | None = None
    reservation: str = NO_ALLOCATION
    reserved_requests: str = NO_ALLOCATION
    reserved_at: datetime | None = None
    reserved_position: Offset = ORIGIN

    bound_at: datetime | None = None
    bound_position: Offset = ORIGIN
    release_reason: str | None = None
    release_message: str = ""
    released_at: datetime | None = None
    released_position: Offset = ORIGIN
    gone_at: datetime | None = None
    gone_position: Offset = ORIGIN
    over_at: datetime | None = None


class SharedDeviceUse(NamedTuple):
    """A device that a node shares, with what pods hold of it. `memory` is in bytes, `core` and `ratio` in percent.

    `core` and `memory` are of GPUs alone; the `ratio` of other devices is that of the device itself. `holders` are
    pods, `<namespace>/<name>`, by name and separated by commas, and `pods` is their number; of a pod that has a GPU
    without an allocation only the UID is there.
    """

    node: str
    type: str
    minor: int
    id: str | None
    model: str | None
    healthy: bool
    core: int | None
    core_used: int | None
    memory: int | None
    memory_used: int | None
    ratio: int | None
    ratio_used: int
    pods: int
    holders: str


class SharedNodeVersion(NamedTuple):
    """What a node shared from `valid_from` up to, not including, `valid_to`; otherwise as `SharedNode`."""

    node: str
    valid_from: datetime
    valid_to: datetime | None
    position: Offset
    present: bool
    model: str | None
    partition_policy: str | None
    devices: str
    not_shared: str


class SharedPodFact(NamedTuple):
    """A fact about a pod, as far as it says who holds what; `over_at` is that of the pod.

    `kind` is the name of its event. Of two of one kind and time the later recorded one is there.
    """

    uid: str
    happened_at: datetime
    kind: str
    position: Offset
    node: str | None
    allocation: str
    started: bool
    over_at: datetime | None


class SharedAllocation(NamedTuple):
    """What a pod held of a device of a node from `valid_from` up to, not including, `valid_to`.

    Amounts are as in `SharedDeviceUse`; `over_at` is that of the pod. It holds nothing while the node shares nothing.
    """

    uid: str
    node: str
    type: str
    minor: int
    valid_from: datetime
    valid_to: datetime | None
    pod: str
    namespace: str
    id: str | None
    core: int | None
    memory: int | None
    ratio: int
    over_at: datetime | None


SHARED_NODE: Final[TableSpec[SharedNode]] = TableSpec("shared_node", SharedNode, ("node",))
SHARED_CHECKPOINTS: Final[TableSpec[SharedCheckpoints]] = TableSpec("shared_checkpoints", SharedCheckpoints, ("node",))
SHARED_POD: Final[TableSpec[SharedPod]] = TableSpec(
    "shared_pod",
    SharedPod,
    ("uid",),
    retires=("over_at",),
    page_by=("uid",),
    history=SHARED_ALLOCATIONS.name,
)
SHARED_DEVICE: Final[TableSpec[SharedDeviceUse]] = TableSpec(
    "shared_device", SharedDeviceUse, ("node", "type", "minor")
)
SHARED_NODE_HISTORY: Final[TableSpec[SharedNodeVersion]] = TableSpec(
    "shared_node_history", SharedNodeVersion, ("node", "valid_from"), retires=("valid_to",), page_by=("node",)
)
SHARED_POD_FACT: Final[TableSpec[SharedPodFact]] = TableSpec(
    "shared_pod_fact",
    SharedPodFact,
    ("uid", "happened_at", "kind"),
    retires=("over_at",),
    page_by=("uid",),
    history=SHARED_ALLOCATIONS.name,
)
SHARED_ALLOCATION: Final[TableSpec[SharedAllocation]] = TableSpec(
    "shared_allocation",
    SharedAllocation,
    ("uid", "node", "type", "minor", "valid_from"),
    retires=("over_at",),
    page_by=("uid",),
    history=SHARED_ALLOCATIONS.name,
)
SHARED_CHECKPOINTS_HISTORY: Final[TableSpec[SharedCheckpointsVersion]] = TableSpec(
    "shared_checkpoints_history",
    SharedCheckpointsVersion,
    ("node", "valid_from"),
    retires=("valid_to",),
    page_by=("node",),
)
SPECS: Final = (
    SHARED_NODE,
    SHARED_POD,
    SHARED_CHECKPOINTS,
    SHARED_DEVICE,
    SHARED_NODE_HISTORY,
    SHARED_POD_FACT,
    SHARED_ALLOCATION,
    SHARED_CHECKPOINTS_HISTORY,
)
