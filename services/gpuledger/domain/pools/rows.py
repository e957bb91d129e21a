"""The rows that the decider of pools folds facts into, beside pools themselves.

They are its own, and hold only the properties of devices and nodes that pools depend on.
"""

from datetime import datetime
from typing import Any, NamedTuple

from gpuledger.domain.inventory.state import NO_LABELS, GpuModule, ModuleSettings
from gpuledger.domain.pools.pools import POOLS_SPECS
from gpuledger.domain.pools.spec import DeviceFacts, profiles_of
from gpuledger.domain.table import TableSpec


class PoolDevice(NamedTuple):
    """A GPUDevice; `prepared` is how far it is prepared, `labels` are those that gpuledger keeps, as a JSON object."""

    name: str
    node: str
    device_index: int | None
    managed: bool
    ignored: bool
    missing: bool
    prepared: str
    inventory_id: str
    product: str | None
    pci_vendor: str | None
    pci_device: str | None
    mig_capable: bool | None
    mig_profiles: str | None
    labels: str
    uuid: str | None
    pci_address: str | None

    @property
    def facts(self) -> DeviceFacts:
        """The properties that selectors compare."""
        return DeviceFacts(
            self.inventory_id, self.product, self.pci_vendor, self.pci_device, self.mig_capable,
            profiles_of(self.mig_profiles),
        )  # fmt: skip


class PoolMark(NamedTuple):
    """What people put on a GPUDevice: labels (a JSON object), and the pool's name of either assignment annotation."""

    device: str
    marked_at: datetime
    labels: str
    requested_pool: str | None
    requested_cluster_pool: str | None

    def ended_at(self) -> datetime | None:
        """Since when there is nothing of people's on the device, or no device; None while there is."""
        has_none = self.requested_pool is None and self.requested_cluster_pool is None and self.labels == NO_LABELS
        return self.marked_at if has_none else None


class PoolNode(NamedTuple):
    """A node: whether its devices may be pooled, its labels (a JSON object) with their time, and whether it is aside.

    That is whether its maintenance cordons it, by what is decided, and not by what somebody does to the Node by hand.
    `shares` says that a label gives its cards to sharing, and `sharing_at` since when it does, or does no more.
    `left_as_of` and `shared_as_of` are the `sharing_at` that pools and `sharing` decided by last.
    """

    node: str
    ready: bool
    labels: str
    labelled_at: datetime | None
    aside: bool = False
    shares: bool = False
    sharing_at: datetime | None = None
    left_as_of: datetime | None = None
    shared_as_of: datetime | None = None

    def is_left_to_sharing(self) -> bool:
        """Whether pools leave the node's cards to sharing: while it has the label, and until sharing follows its end.

        Whatever `sharing` has offered is out of the way then, however far behind it was.
        """
        if self.sharing_at is None:
            return False
        return self.shares or self.shared_as_of is None or self.shared_as_of != self.sharing_at

    def ended_at(self) -> datetime | None:
        """Since when the row says nothing that a node without one would not have; None while it does."""
        says_nothing = not self.ready and not self.aside and self.labels == NO_LABELS
        if not says_nothing or self.is_left_to_sharing():
            return None
        return max((time for time in (self.labelled_at, self.sharing_at) if time is not None), default=None)


class PoolSharedCard(NamedTuple):
    """A card that its node offers for sharing, by its UUID."""

    uuid: str
    node: str


class PoolPod(NamedTuple):
    """A pod that requests units of pools: `requests` is a JSON object of units by resource.

    `observed_at` is the time of the latest fact about it, `bound_at` when this pod was first recorded on its node.
    """

    pod: str
    uid: str
    node: str | None
    requests: str
    observed_at: datetime
    bound_at: datetime | None


class SetupReport(NamedTuple):
    """The agent's last report of a device's present assignment; `reported_at` is the time of its last report of any.

    `report` is the kind of report, None before the first. `partitions_most` is the largest number of partitions that it
    had, or was confirmed with. `requested_at` is when the agent was last requested to report, and is later each time.
    """

    device: str
    pool: str | None
    report: str | None
    partitions: int
    partitions_most: int
    reason: str
    message: str
    reported_at: datetime | None
    requested_at: datetime | None


class PoolTally(NamedTuple):
    """How many devices a pool holds, and what the assigned and set up ones among them offer."""

    pool: str
    devices: int
    cards: int
    partitions: int


class DeviceProblem(NamedTuple):
    """A device of a pool that its agent refuses, or that has drifted. Drift stays until people confirm it."""

    pool: str
    device: str
    kind: str
    reason: str
    message: str


class NodeOrders(NamedTuple):
    """The last list of orders for the node's agent: a JSON array of `WantedDevice`, and its time.

    A node whose last device has left its pool keeps its row for a while, so that later orders never have an earlier
    time.
    """

    node: str
    devices: str
    changed_at: datetime

    def ended_at(self) -> datetime | None:
        """When the last device has left its pool; None while there is one."""
        return self.changed_at if self.devices == NO_ORDERS else None


NO_ORDERS = "[]"
"""The list of a node without devices in pools."""

REFUSED, DRIFTED = "refused", "drifted"
"""Kinds of problems."""

POOL_DEVICE = TableSpec("pool_device", PoolDevice, ("name",))
POOL_MARK = TableSpec("pool_mark", PoolMark, ("device",))
POOL_NODE = TableSpec("pool_node", PoolNode, ("node",))
POOL_SHARED_CARD = TableSpec("pool_shared_card", PoolSharedCard, ("uuid",))
POOL_POD = TableSpec("pool_pod", PoolPod, ("pod",))
POOL_SETUP = TableSpec("pool_setup", SetupReport, ("device",))
POOL_TALLY = TableSpec("pool_tally", PoolTally, ("pool",))
DEVICE_PROBLEM = TableSpec("pool_device_problem", DeviceProblem, ("pool", "device", "kind"))
NODE_ORDERS = TableSpec("pool_node_orders", NodeOrders, ("node",))
POOL_MODULE = TableSpec("pool_module", GpuModule, ("module",))
POOL_SETTINGS = TableSpec("pool_settings", ModuleSettings, ("module",))

SPECS: tuple[TableSpec[Any], ...] = (
    *POOLS_SPECS,
    POOL_DEVICE,
    POOL_MARK,
    POOL_NODE,
    POOL_SHARED_CARD,
    POOL_POD,
    POOL_SETUP,
    POOL_TALLY,
    DEVICE_PROBLEM,
    NODE_ORDERS,
    POOL_MODULE,
    POOL_SETTINGS,
)
