"""The state of the decider of pools: tables, sums beside them, and marks of what a fact may have changed.

A fold marks the devices, pools and nodes that a fact may affect, so that the decider checks only those, however many
others there are. The marks follow from the fact and the tables, and are used up before the next fact is folded.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import orjson

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.phases import AgentReport, AssignmentPhase, DeviceState
from gpuledger.domain.inventory.state import DEFAULT_SETTINGS, ModuleSettings, json_text
from gpuledger.domain.pools import rows
from gpuledger.domain.pools.pools import Pool, Pools
from gpuledger.domain.pools.spec import Spec, selects, units
from gpuledger.domain.table import Table
from gpuledger.domain.tombstones import RowEnds
from gpuledger.events.node import CARDS_PER_NODE_MAX
from gpuledger.events.position import order


class _Share(NamedTuple):
    """What a device adds to its pool's tally, and whether it is refused there."""

    pool: str
    cards: int
    partitions: int
    refused: tuple[str, str] | None


class PoolFacts(Pools):
    """Pools, and the devices, nodes, pods, agent reports and settings that decisions about them depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.device = Table(rows.POOL_DEVICE, "node")
        self.mark = Table(rows.POOL_MARK, "requested_pool", "requested_cluster_pool")
        self.node = Table(rows.POOL_NODE)
        self.shared_card = Table(rows.POOL_SHARED_CARD, "node")
        self.mark_ends = RowEnds(self.mark, rows.PoolMark.ended_at)
        self.node_ends = RowEnds(self.node, rows.PoolNode.ended_at)
        self.pod = Table(rows.POOL_POD)
        self.setup = Table(rows.POOL_SETUP)
        self.tally = Table(rows.POOL_TALLY)
        self.problem = Table(rows.DEVICE_PROBLEM, "pool")
        self.orders = Table(rows.NODE_ORDERS)
        self.order_ends = RowEnds(self.orders, rows.NodeOrders.ended_at)
        self.module = Table(rows.POOL_MODULE)
        self.settings = Table(rows.POOL_SETTINGS)
        self._devices: dict[str, None] = {}
        self._pools: dict[str, None] = {}
        self._nodes: dict[str, None] = {}

    def settings_in_force(self) -> ModuleSettings:
        """The settings, or their defaults if there are none."""
        return self.settings.get(MODULE_CONFIG) or DEFAULT_SETTINGS

    def is_in_force(self) -> bool:
        """Whether the service decides anything: the module is enabled and its prerequisites are met."""
        module = self.module.get(MODULE_CONFIG)
        return module is not None and module.met and self.settings_in_force().enabled

    def owner(self, name: str) -> Pool | None:
        """The pool that owns the name: of the pools with that name the one that was recorded first."""
        return min(self.pool.where("name", name), key=lambda row: (order(row.position), row.subject), default=None)

    def is_left_to_sharing(self, device: rows.PoolDevice) -> bool:
        """Whether no pool may take the device: its node's cards are for sharing, or it is offered there still."""
        node = self.node.get(device.node)
        if node is not None and node.is_left_to_sharing():
            return True
        return device.uuid is not None and self.shared_card.get(device.uuid) is not None

    def held_beside(self, device: rows.PoolDevice, pool: str) -> int:
        """How many other devices of the device's node belong to the pool."""
        others = (self.assignment.get(name) for name in self.device.by["node"].get(device.node) if name != device.name)
        return sum(row is not None and row.pool == pool for row in others)

    def held_on(self, node: str) -> list[str]:
        """The node's devices that belong to a pool, by name."""
        held = self.assignment.rows
        return sorted(name for name in self.device.by["node"].get(node) if name in held and held[name].pool is not None)

    def is_crowded(self, node: str) -> bool:
        """Whether the node has more devices than pools can hold; see `CARDS_PER_NODE_MAX`."""
        return len(self.device.by["node"].get(node)) > CARDS_PER_NODE_MAX

    def offered(self, device: str) -> tuple[int, int]:
        """How many cards and how many partitions a device adds to what its pool offers."""
        share = self._share(device)
        return (0, 0) if share is None else (share.cards, share.partitions)

    def units_by_node(self, pool: Pool) -> Counter[str]:
        """How many units of a pool each node offers, by the formula of the pool's capacity."""
        definition, cap = pool.spec.definition, self.settings_in_force().max_slices_per_device
        found = Counter[str]()
        for held in self.assignment.where("pool", pool.subject):
            device = self.device.get(held.device)
            cards, partitions = self.offered(held.device)
            if device is not None and cards:
                found[device.node] += units(definition, cards=cards, partitions=partitions, cap=cap)
        return found

    def labels_of(self, device: rows.PoolDevice) -> dict[str, str]:
        """The GPUDevice's labels: people's, overridden by those that gpuledger keeps."""
        mark = self.mark.get(device.name)
        return {**({} if mark is None else orjson.loads(mark.labels)), **orjson.loads(device.labels)}

    def selects_node(self, spec: Spec, node: str) -> bool:
        """Whether a pool's node selector selects the node."""
        row = self.node.get(node) if spec.nodes else None
        return selects(spec.nodes, node, {} if row is None else orjson.loads(row.labels))

    def problems(self, pool: str, kind: str) -> list[rows.DeviceProblem]:
        """The pool's devices with this kind of problem, by name."""
        return sorted(row for row in self.problem.where("pool", pool) if row.kind == kind)

    def touch_device(self, name: str) -> None:
        """A decision about the device may be due."""
        self._devices[name] = None

    def touch_pool(self, pool: str) -> None:
        """A decision about the pool may be due."""
        self._pools[pool] = None

    def touch_node(self, node: str) -> None:
        """Decisions about the node's devices may be due."""
        self._devices |= dict.fromkeys(self.device.by["node"].get(node))

    def touch_orders(self, device: str) -> None:
        """New orders may be due for the agent of the device's node."""
        row = self.device.get(device)
        if row is not None:
            self._nodes[row.node] = None

    def touch_agent(self, node: str) -> None:
        """Decisions about the node as a whole may be due."""
        self._nodes[node] = None

    def touch_orders_of(self, pool: str) -> None:
        """New orders may be due for the agents of the pool's devices."""
        for device in self.assignment.by["pool"].get(pool):
            self.touch_orders(device)

    def touch_name(self, name: str) -> None:
        """Decisions may be due about pools of this name, the devices that they hold or may take, and their requests."""
        for column in ("requested_pool", "requested_cluster_pool"):
            self._devices |= dict.fromkeys(self.mark.by[column].get(name))
        for row in self.pool.where("name", name):
            self._pools[row.subject] = None
            self._devices |= dict.fromkeys(self.assignment.by["pool"].get(row.subject))
            if row.approval is not None:
                self._touch_approved(row.approval)

    def _touch_approved(self, approval: str) -> None:
        """Touch devices without a pool that have the label of an approval; all of them if it names no label."""
        key, _, value = approval.partition("=")
        text, held = json_text({key: value})[1:-1] if approval else "", self.assignment.rows
        for name, row in self.device.rows.items():
            if row.prepared == DeviceState.READY and (name not in held or held[name].pool is None):
                mark = self.mark.get(name)
                if text in row.labels or (mark is not None and text in mark.labels):
                    self._devices[name] = None

    def touch_all(self) -> None:
        """Any decision may be due."""
        self._devices |= dict.fromkeys(self.device.rows)
        self._pools |= dict.fromkeys(self.pool.rows)
        self._nodes |= dict.fromkeys(name for name, row in self.node.rows.items() if row.shares)
        self._nodes |= dict.fromkeys(self.orders.rows)
        for device in self.assignment.rows:
            self.touch_orders(device)

    def take_devices(self) -> list[str]:
        """The devices that were touched since the last call, by name."""
        devices, self._devices = self._devices, {}
        return sorted(devices)

    def take_pools(self) -> list[str]:
        """The pools that were touched since the last call, by id."""
        pools, self._pools = self._pools, {}
        return sorted(pools)

    def take_nodes(self) -> list[str]:
        """The nodes whose orders were touched since the last call, by name."""
        nodes, self._nodes = self._nodes, {}
        return sorted(nodes)

    def take_all(self) -> None:
        """Forget all that was touched."""
        self._devices, self._pools, self._nodes = {}, {}, {}

    @contextmanager
    def counted(self, device: str) -> Iterator[None]:
        """Keep the sums right while a device's assignment or its agent's report changes."""
        before = self._share(device)
        yield
        after = self._share(device)
        if before != after:
            self._count(device, before, -1)
            self._count(device, after, 1)

    def drift(self, device: str, pool: str, reason: str, message: str) -> None:
        """Note that a device of an existing pool is not what it was assigned as; the first reason stays."""
        row = rows.DeviceProblem(pool, device, rows.DRIFTED, reason, message)
        if pool in self.pool.rows and self.problem.get(self.problem.key_of(row)) is None:
            self.problem.put(row)
            self.touch_pool(pool)

    def settle_drift(self, pool: str) -> list[str]:
        """Forget the drift of the pool's devices; returns the devices."""
        gone = self.problems(pool, rows.DRIFTED)
        for row in gone:
            self.problem.delete(self.problem.key_of(row))
        return [row.device for row in gone]

    def free_room(self, pool: str, node: str) -> None:
        """A device of the node has left the pool, so that others of the node may take its place."""
        row, devices = self.pool.get(pool), self.device.by["node"].get(node)
        is_limited = row is not None and row.spec.definition.devices_per_node_max is not None
        if is_limited or len(devices) >= CARDS_PER_NODE_MAX:
            self.touch_node(node)

    def _share(self, device: str) -> _Share | None:
        row, setup = self.assignment.get(device), self.setup.get(device)
        if row is None or row.pool is None:
            return None
        report = setup.report if setup is not None and setup.pool == row.pool else None
        offers = setup is not None and row.phase == AssignmentPhase.ASSIGNED and report == AgentReport.APPLIED
        refused = setup is not None and row.phase != AssignmentPhase.UNASSIGNING and report == AgentReport.REFUSED
        return _Share(
            row.pool,
            int(offers),
            setup.partitions if setup is not None and offers else 0,
            (setup.reason, setup.message) if setup is not None and refused else None,
        )

    def _count(self, device: str, share: _Share | None, sign: int) -> None:
        if share is None:
            return
        pool = share.pool
        _, devices, cards, partitions = self.tally.get(pool) or rows.PoolTally(pool, 0, 0, 0)
        row = rows.PoolTally(pool, devices + sign, cards + sign * share.cards, partitions + sign * share.partitions)
        if row.devices:
            self.tally.put(row)
        else:
            self.tally.delete(pool)
        if share.refused is not None:
            problem = rows.DeviceProblem(pool, device, rows.REFUSED, *share.refused)
            if sign > 0:
                self.problem.put(problem)
            else:
                self.problem.delete(self.problem.key_of(problem))
        self.touch_pool(pool)
