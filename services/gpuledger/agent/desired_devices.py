"""Desired devices: the part that follows the newest list of what pools desire of this node's devices."""

from typing import Final

from gpuledger.agent.board import Board
from gpuledger.agent.newest_list import ListFollower, NodeList
from gpuledger.events.node import NodeDevicesWanted
from gpuledger.ledger.permissions import desired_devices_subject

STATE_KEY: Final = "orders"


class DesiredDevices(ListFollower[NodeDevicesWanted]):
    """Puts the desired devices of a node on the board; see `gpuledger.agent.part.Part`."""

    name = "desired devices"

    @staticmethod
    def followed(node: str, board: Board) -> NodeList[NodeDevicesWanted]:
        """The list of the service `pools`."""
        return NodeList(
            NodeDevicesWanted,
            desired_devices_subject(node),
            STATE_KEY,
            lambda found: board.put(desired=found.devices if found is not None else ()),
        )
