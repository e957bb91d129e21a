"""The rows that the decider of pools folds facts into, beside those of what it decides.

They are its own, and hold no more of devices and nodes than pools look at.
"""

from datetime import datetime
from typing import Any, NamedTuple

from gpuledger.domain.inventory.state import GpuModule, ModuleSettings
from gpuledger.domain.pools.pools import POOLS_SPECS
from gpuledger.domain.table import TableSpec


class PoolDevice(NamedTuple):
    """A GPUDevice as pools see it; `prepared` is how far it is prepared, `labels` are ours as a JSON object."""

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


class PoolMark(NamedTuple):
    """What people put on a GPUDevice: labels (a JSON object), and the pool's name of either assignment annotation."""

    device: str
    marked_at: datetime
    labels: str
    asked: str | None
    asked_cluster: str | None


class PoolNode(NamedTuple):
    """A node: whether its devices may be pooled, and its labels (a JSON object) with their time."""

    node: str
    ready: bool
    labels: str
    labelled_at: datetime | None


class PoolPod(NamedTuple):
    """A pod that asks for units of pools: `requests` is a JSON object of units by resource.

    `said_at` is when the latest was said of it, `bound_at` when this pod was first known to be on its node.
    """

    pod: str
    uid: str
    node: str | None
    requests: str
    said_at: datetime
    bound_at: datetime | None


class PoolSetup(NamedTuple):
    """What the agent last said of the assignment that a device has now, and when it last said anything.

    `word` None: nothing yet. `partitions_most` is how many partitions it had when it had most, or was confirmed with.
    `asked_at` is when it was last to say anew what it did, and is later each time.
    """

    device: str
    pool: str | None
    word: str | None
    partitions: int
    partitions_most: int
    reason: str
    message: str
    told_at: datetime | None
    asked_at: datetime | None


class PoolTally(NamedTuple):
    """How many devices a pool holds, and what those offer that are assigned and set up."""

    pool: str
    devices: int
    cards: int
    partitions: int


class PoolTrouble(NamedTuple):
    """What is wrong with a device of a pool: it is refused, or has drifted. Drift stays until it is confirmed."""

    pool: str
    device: str
    kind: str
    reason: str
    message: str


class PoolWanted(NamedTuple):
    """What the node's agent was last told to do with devices of pools: a JSON array of `WantedDevice`, and when.

    A node whose last device has left its pool keeps its row, so that nothing that it is told later comes before that.
    """

    node: str
    devices: str
    changed_at: datetime


REFUSED, DRIFTED = "refused", "drifted"
"""Kinds of trouble."""

POOL_DEVICE = TableSpec("pool_device", PoolDevice, ("name",))
POOL_MARK = TableSpec("pool_mark", PoolMark, ("device",))
POOL_NODE = TableSpec("pool_node", PoolNode, ("node",))
POOL_POD = TableSpec("pool_pod", PoolPod, ("pod",))
POOL_SETUP = TableSpec("pool_setup", PoolSetup, ("device",))
POOL_TALLY = TableSpec("pool_tally", PoolTally, ("pool",))
POOL_TROUBLE = TableSpec("pool_trouble", PoolTrouble, ("pool", "device", "kind"))
POOL_WANTED = TableSpec("pool_wanted", PoolWanted, ("node",))
POOL_MODULE = TableSpec("pool_module", GpuModule, ("module",))
POOL_SETTINGS = TableSpec("pool_settings", ModuleSettings, ("module",))

SPECS: tuple[TableSpec[Any], ...] = (
    POOL_DEVICE,
    POOL_MARK,
    POOL_NODE,
    POOL_POD,
    POOL_SETUP,
    POOL_TALLY,
    POOL_TROUBLE,
    POOL_WANTED,
    POOL_MODULE,
    POOL_SETTINGS,
    *POOLS_SPECS,
)
