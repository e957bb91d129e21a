"""The state of shared devices: what nodes share, and which pods hold what. Pure.

Whoever needs `NodeState`s in step with it follows what changes: see `gpuledger.domain.sharing.node_states`.
"""

from collections import deque
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.domain.fact import TableState
from gpuledger.domain.sharing.rows import (
    NO_ALLOCATION,
    NO_DEVICES,
    SHARED_CHECKPOINTS,
    SHARED_NODE,
    SHARED_POD,
    SharedCheckpoints,
    SharedNode,
    SharedPod,
)
from gpuledger.domain.table import Table

GONE_PODS_MAX: Final = 10_000
"""How many pods that are gone stay in a state whose rows are never written: late facts about them change nothing."""


class TouchedSharing(NamedTuple):
    """The names of nodes and the UIDs of pods about which something changed, in the order of the changes."""

    nodes: tuple[str, ...]
    pods: tuple[str, ...]


class Sharing(TableState):
    """What nodes share, and the pods that ask for it or hold it."""

    def __init__(self) -> None:
        self.shared_node: Table[SharedNode] = Table(SHARED_NODE)
        self.shared_pod: Table[SharedPod] = Table(SHARED_POD)
        self.shared_checkpoints: Table[SharedCheckpoints] = Table(SHARED_CHECKPOINTS)
        self._touched: tuple[dict[str, None], dict[str, None]] | None = None

    def put_node(self, row: SharedNode) -> None:
        """Take in what a node shares now."""
        self.shared_node.put(row)
        if self._touched is not None:
            self._touched[0][row.node] = None

    def put_pod(self, row: SharedPod) -> None:
        """Take in how a pod is now."""
        self.shared_pod.put(row)
        if self._touched is not None:
            self._touched[1][row.uid] = None

    def checkpoints_of(self, node: str) -> str:
        """The GPUs that containers of a node have without an allocation."""
        row = self.shared_checkpoints.get(node)
        return NO_DEVICES if row is None else row.checkpoints

    def put_checkpoints(self, row: SharedCheckpoints) -> None:
        """Take in what containers of a node have without an allocation."""
        self.shared_checkpoints.put(row)
        if self._touched is not None:
            self._touched[0][row.node] = None

    def follow(self) -> TouchedSharing:
        """Begin to note what changes, for `take_touched`; returns all that is there."""
        self._touched = ({}, {})
        return TouchedSharing(tuple(self.shared_node.rows), tuple(self.shared_pod.rows))

    def take_touched(self) -> TouchedSharing:
        """What changed since the last call, or since `follow`, which comes first."""
        assert self._touched is not None, "somebody follows"
        nodes, pods = self._touched
        self._touched = ({}, {})
        return TouchedSharing(tuple(nodes), tuple(pods))


class SharingInMemory(Sharing):
    """The state of a fold whose rows are never written: of the pods that are gone, it forgets all but the last ones."""

    def __init__(self) -> None:
        super().__init__()
        # A table that pages rows in notes every key that it deletes, for whoever writes it.
        self.shared_pod = Table(SHARED_POD._replace(retires=None, page_by=()))
        for table in (self.shared_node, self.shared_pod, self.shared_checkpoints):
            table.never_written()
        self._gone: deque[str] | None = None

    def put_pod(self, row: SharedPod) -> None:
        """Take in how a pod is now; the pods that were gone first leave memory."""
        super().put_pod(row)
        if _over_at(row) is None:
            return
        if self._gone is None:
            over_at = {uid: at for uid, one in self.shared_pod.rows.items() if (at := _over_at(one)) is not None}
            self._gone = deque(sorted(over_at, key=lambda uid: (over_at[uid], uid)))
        else:
            self._gone.append(row.uid)
        while len(self._gone) > GONE_PODS_MAX:
            uid = self._gone.popleft()
            over = self.shared_pod.get(uid)
            if over is not None and _over_at(over) is not None:
                self.shared_pod.delete(uid)


def _over_at(row: SharedPod) -> datetime | None:
    """Since when a pod matters no more: it is gone, or lost its reservation and watchers have never seen it."""
    if row.observed_at is None and row.allocation == NO_ALLOCATION:
        return row.over_at or row.released_at
    return row.over_at
