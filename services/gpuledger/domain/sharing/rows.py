"""The rows of shared devices: what nodes share, and which pods hold what of it, now."""

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

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


class SharedPod(NamedTuple):
    """A pod that asks for shared devices or has some. Amounts and allocations are JSON objects as in events.

    `state`, `node`, `allocation` and `differs` follow from the facts below them: what counts now, and whether its
    annotation and the reservation are not the same. Of each kind of fact the latest is there, with its time and its
    position. `over_at` is when it was gone for good. `facts` counts its rows of `shared_pod_fact`, where
    anybody keeps these.
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
    annotation: str | None = None
    first_at: datetime | None = None
    observed_at: datetime | None = None
    observed_position: Offset = ORIGIN

    strategy: str | None = None
    reserved_node: str | None = None
    reservation: str | None = None
    reserved_requests: str | None = None
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
    facts: int = 0


SHARED_NODE: Final[TableSpec[SharedNode]] = TableSpec("shared_node", SharedNode, ("node",))
SHARED_POD: Final[TableSpec[SharedPod]] = TableSpec(
    "shared_pod", SharedPod, ("uid",), retires=("over_at",), page_by=("uid",)
)
