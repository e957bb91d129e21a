"""The objects of dynamic resource allocation: slices, devices, holdings of claims, taints. Pure data.

Names and meanings are those of `resource.k8s.io/v1`. Keys consist of driver and pool, because two drivers may use the
same pool name.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpuledger.domain.quantities import Quantity

BLOCKING_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep a device from being allocated; all others do not."""


class PoolId(NamedTuple):
    """A pool of one driver."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


class LabelledNode(NamedTuple):
    """Where a claim would be used."""

    name: str
    labels: Mapping[str, str]


class NodeExpression(NamedTuple):
    """One expression of a node selector; `is_field` where it is about the node's name."""

    key: str
    operator: str
    values: tuple[str, ...]
    is_field: bool = False


class Reach(NamedTuple):
    """The nodes that can use something: one node, all of them, or the selection of one of the terms.

    Nothing at all reaches no node.
    """

    node: str | None = None
    everywhere: bool = False
    terms: tuple[tuple[NodeExpression, ...], ...] = ()


class Policy(NamedTuple):
    """How much of a capacity a claim consumes for its request; `values` ascend, all amounts are in billionths."""

    default: int | None = None
    values: tuple[int, ...] = ()
    low: int | None = None
    high: int | None = None
    step: int | None = None


class Capacity(NamedTuple):
    """One capacity of a device."""

    value: Quantity
    policy: Policy | None = None


class DeviceTaint(NamedTuple):
    """Why a device should not be used."""

    key: str
    value: str | None
    effect: str

    @property
    def blocks(self) -> bool:
        """Whether it keeps the device from being allocated."""
        return self.effect in BLOCKING_EFFECTS


Counters = Mapping[str, Mapping[str, Quantity]]
"""Amounts by counter set and counter."""


class DraDevice(NamedTuple):
    """A device as its slice publishes it; `is_shareable` where several allocations are allowed.

    `reach` is None where the slice says for all of its devices which nodes can use them.
    """

    name: str
    is_shareable: bool = False
    capacity: Mapping[str, Capacity] = {}
    consumes: Counters = {}
    taints: tuple[DeviceTaint, ...] = ()
    reach: Reach | None = None


class Slice(NamedTuple):
    """One ResourceSlice; `generation` and `expected`, the number of slices, are its statements about the pool.

    `spec_generation` is the object's own. `reach` is None where each device has its own. `repeated_sets` are counter
    sets that it defines more than once.
    """

    name: str
    uid: str
    pool: PoolId
    generation: int
    expected: int
    reach: Reach | None
    devices: tuple[DraDevice, ...] = ()
    counters: Counters = {}
    repeated_sets: tuple[str, ...] = ()
    spec_generation: int = 1

    @property
    def has_counters(self) -> bool:
        """Whether it defines counters, and so is in every node's reach."""
        return bool(self.counters or self.repeated_sets)


class ClaimId(NamedTuple):
    """A ResourceClaim."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Holding(NamedTuple):
    """One result of a claim's allocation. With a `share` the device is shared and `consumed` counts."""

    claim: ClaimId
    request: str
    pool: PoolId
    device: str
    share: str | None = None
    consumed: Mapping[str, Quantity] = {}
    has_admin_access: bool = False

    @property
    def holds(self) -> bool:
        """Whether it takes anything from others; administrators' access does not."""
        return not self.has_admin_access


class TaintRule(NamedTuple):
    """A DeviceTaintRule; what it does not select by is None and matches anything."""

    name: str
    taint: DeviceTaint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def taints(self, pool: PoolId, device: str) -> bool:
        """Whether the rule is about a device."""
        return self.driver in (None, pool.driver) and self.pool in (None, pool.name) and self.device in (None, device)
