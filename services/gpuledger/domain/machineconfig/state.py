"""The state of the rollout of machine configuration. Pure.

A fold marks the nodes and pools that a fact may lead to a decision about. What follows from rows alone, such as who
belongs to which pool, is kept beside them and made anew from rows that were loaded.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.domain.fact import TableState
from gpuledger.domain.machineconfig import rows
from gpuledger.domain.machineconfig.membership import Membership
from gpuledger.domain.machineconfig.selection import read_pool
from gpuledger.domain.table import Table
from gpuledger.events.machine_config import MachineConfigPoolDefined

IDLE: Final = "Idle"
DRAINING: Final = "Draining"
APPLYING: Final = "Applying"
FAILED: Final = "Failed"
"""The phases of a node's update."""

SOURCE: Final = "/services/rollout"
"""The source of the rollout's decisions."""

OWNER_PREFIX: Final = "rollout/"
"""How the owner of the rollout's requests for maintenance begins; the pool follows."""

CONTROLLER: Final = "controller"
"""The id of the row that says where the service runs, and the subject of the events about it."""


class Touched(NamedTuple):
    """The nodes about which something may have to be decided, the pools with all of theirs, and pools alone."""

    nodes: tuple[str, ...]
    pools: tuple[str, ...]
    counted: tuple[str, ...]


class Rollout(TableState):
    """Definitions, rendered configurations, pools, nodes and their maintenance."""

    def __init__(self) -> None:
        self.config = Table(rows.MACHINE_CONFIG)
        self.pool = Table(rows.CONFIG_POOL)
        self.rendered = Table(rows.RENDERED_CONFIG, "pool")
        self.status = Table(rows.CONFIG_POOL_STATUS)
        self.node = Table(rows.CONFIG_NODE)
        self.maintenance = Table(rows.CONFIG_MAINTENANCE)
        self.holder = Table(rows.CONFIG_HOLDER, "node")
        self.controller = Table(rows.CONFIG_CONTROLLER)
        self.membership = Membership(self.node, self.pool)
        self._uses: Counter[str] | None = None
        self._waiting: dict[str, None] | None = None
        self._touched_nodes: dict[str, None] = {}
        self._touched_pools: dict[str, None] = {}
        self._touched_counts: dict[str, None] = {}

    # Rows that others follow from.

    def put_node(self, row: rows.ConfigNodeRow) -> None:
        """Put a node's row, and touch the pools that it joins or leaves."""
        self.membership.load()
        before = self.node.get(row.node)
        self._count(_revisions(before), _revisions(row))
        self.node.put(row)
        self._note_waiting(row.node)
        if before is None or (before.uid, before.labels) != (row.uid, row.labels):
            self._refresh(row.node)

    def delete_node(self, node: str) -> None:
        """Forget a node's row."""
        self.membership.load()
        self._count(_revisions(self.node.get(node)), ())
        self.node.delete(node)
        self._note_waiting(node)
        self._refresh(node)

    def put_maintenance(self, row: rows.ConfigMaintenanceRow) -> None:
        """Put how far the maintenance of a node is; of a Node that is gone nothing is kept once that is over."""
        node = self.node.get(row.node)
        is_over = row.requested_at is None and not row.may_be_cordoned
        if is_over and (node is None or node.uid is None):
            self.maintenance.delete(row.node)
        else:
            self.maintenance.put(row)
        self._note_waiting(row.node)

    def delete_maintenance(self, node: str) -> None:
        """Forget how far the maintenance of a node is."""
        self.maintenance.delete(node)
        self._note_waiting(node)

    def put_pool(self, row: rows.ConfigPoolRow) -> None:
        """Put a pool's row."""
        self.membership.load()
        self.pool.put(row)
        self._refresh_pool(row.name)

    def delete_pool(self, pool: str) -> None:
        """Forget a pool's row."""
        self.membership.load()
        self.pool.delete(pool)
        self._refresh_pool(pool)

    def _refresh_pool(self, pool: str) -> None:
        self.touch_pool(pool)
        for node in self.membership.refresh_pool(pool):
            self._moved(node, self.membership.pools_of(node))

    def _refresh(self, node: str) -> None:
        if pools := self.membership.refresh_node(node):
            self._moved(node, pools)

    def _moved(self, node: str, pools: Iterable[str]) -> None:
        """A node has joined or left pools."""
        row = self.node.get(node)
        if row is not None:
            self.node.put(row._replace(pool=self.home(node)))
        self.touch_node(node)
        for pool in pools:
            self._touched_counts[pool] = None

    # What follows from the rows.

    def definition(self, pool: str) -> MachineConfigPoolDefined | None:
        """A pool's spec; None where there is no such pool."""
        row = self.pool.get(pool)
        return None if row is None else read_pool(row.definition)

    def newest(self, pool: str) -> rows.RenderedConfigRow | None:
        """The configuration of a pool that was rendered last."""
        return max(self.rendered.where("pool", pool), key=lambda row: row.place, default=None)

    def pinned(self, pool: str) -> str | None:
        """The pool's rendered configuration that is rolled out instead of the newest one; None: none is."""
        definition = self.definition(pool)
        row = None if definition is None else self.rendered.get(definition.pinned_revision)
        return None if row is None or row.pool != pool else row.name

    def target(self, pool: str) -> str | None:
        """The name of the configuration that the nodes of a pool are to have."""
        newest = self.newest(pool)
        return self.pinned(pool) or (None if newest is None else newest.name)

    def home(self, node: str) -> str | None:
        """The one pool that a node belongs to; None where it belongs to none, or to several."""
        pools = self.membership.pools_of(node)
        return pools[0] if len(pools) == 1 else None

    def uses(self, revision: str) -> bool:
        """Whether any node has a rendered configuration, or is to have it."""
        return self._counted()[revision] > 0

    def is_controller(self, node: str) -> bool:
        """Whether the service runs on a node."""
        row = self.controller.get(CONTROLLER)
        return row is not None and row.node == node

    def waiting(self) -> list[str]:
        """The nodes about which a wait may be under way, by name."""
        return sorted(self._waiting_nodes())

    def _count(self, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        """A node has, or is to have, other revisions; the pool of one that nobody needs any more may withdraw it."""
        uses = self._counted()
        if before == after:
            return
        uses.subtract(before)
        uses.update(after)
        for name in before:
            row = self.rendered.get(name)
            if row is not None and not uses[name]:
                self._touched_counts[row.pool] = None

    def _counted(self) -> Counter[str]:
        if self._uses is None:
            self._uses = Counter()
            for row in self.node.rows.values():
                self._uses.update(_revisions(row))
        return self._uses

    def _waiting_nodes(self) -> dict[str, None]:
        if self._waiting is None:
            self._waiting = {}
            for node in [*self.node.rows, *self.maintenance.rows]:
                self._note_waiting(node)
        return self._waiting

    def _note_waiting(self, node: str) -> None:
        found, row, maintenance = self._waiting_nodes(), self.node.get(node), self.maintenance.get(node)
        is_under_way = row is not None and (row.phase in (DRAINING, APPLYING) or row.confirms_after is not None)
        if is_under_way or (maintenance is not None and maintenance.awaits_release()):
            found[node] = None
        else:
            found.pop(node, None)

    # What a fold has touched.

    def touch_node(self, node: str) -> None:
        """Something about the node may have to be decided."""
        self._touched_nodes[node] = None

    def touch_pool(self, pool: str) -> None:
        """Something about all nodes of the pool may have to be decided."""
        self._touched_pools[pool] = None

    def take_touched(self) -> Touched:
        """What was touched since the last call, each by name."""
        found = (self._touched_nodes, self._touched_pools, self._touched_counts)
        self._touched_nodes, self._touched_pools, self._touched_counts = {}, {}, {}
        return Touched._make(tuple(sorted(names)) for names in found)

    def wait_to_render(self, pools: Iterable[str], since: datetime) -> None:
        """An input of the rendering of these pools has changed."""
        for name in pools:
            row = self.pool.get(name)
            if row is not None:
                self.pool.put(row._replace(waits_since=since))
                self.touch_pool(name)


def _revisions(row: rows.ConfigNodeRow | None) -> tuple[str, ...]:
    found = () if row is None else (row.current_revision, row.desired_revision)
    return tuple(one for one in found if one is not None)
