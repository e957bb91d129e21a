"""Shared devices: the parts that follow which devices the node shares, and what pods hold of them."""

from typing import Final

from gpuledger.agent.board import Board
from gpuledger.agent.newest_list import STUCK_REFRESHES, ListFollower, NodeList
from gpuledger.events.shares import NodeDevicesAllocated
from gpuledger.events.sharing import NodeDevicesShared
from gpuledger.ledger.permissions import allocated_devices_subject, shared_devices_subject

SHARED_REFRESH_S: Final = 120.0
"""How often the ledger is queried without a notification; most nodes share nothing, and a fleet has many."""

SHARED_KEY: Final = "shared devices"
ALLOCATED_KEY: Final = "allocated devices"


class SharedDevicesFollower(ListFollower[NodeDevicesShared]):
    """Puts what the node shares on the board; see `gpuledger.agent.part.Part`."""

    name = "shared devices"
    refresh_s = SHARED_REFRESH_S
    stuck_after_s = STUCK_REFRESHES * SHARED_REFRESH_S

    @staticmethod
    def followed(node: str, board: Board) -> NodeList[NodeDevicesShared]:
        """The list of the service `sharing`."""
        subject = shared_devices_subject(node)
        return NodeList(NodeDevicesShared, subject, SHARED_KEY, lambda found: board.put(shared=found))


class AllocatedDevicesFollower(ListFollower[NodeDevicesAllocated]):
    """Puts what pods hold of the shared devices on the board; see `gpuledger.agent.part.Part`."""

    name = "allocated devices"
    refresh_s = SHARED_REFRESH_S
    stuck_after_s = STUCK_REFRESHES * SHARED_REFRESH_S

    @staticmethod
    def followed(node: str, board: Board) -> NodeList[NodeDevicesAllocated]:
        """The list of the extender."""
        return NodeList(
            NodeDevicesAllocated,
            allocated_devices_subject(node),
            ALLOCATED_KEY,
            lambda found: board.put(allocated=found.pods if found is not None else ()),
        )
