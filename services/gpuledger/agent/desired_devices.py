"""Desired devices: the part that follows the newest list of what pools desire of this node's devices."""

import asyncio
from typing import Final

from gpuledger.agent.board import Board
from gpuledger.agent.newest_list import REFRESH_S, Connect, ListFollower, NodeList
from gpuledger.agent.part import StateStore
from gpuledger.events.node import NodeDevicesWanted
from gpuledger.ledger.permissions import desired_devices_subject
from gpuledger.runtime.clock import Sleep

STATE_KEY: Final = "orders"


class DesiredDevices(ListFollower[NodeDevicesWanted]):
    """Puts the desired devices of a node on the board; see `gpuledger.agent.part.Part`."""

    name = "desired devices"

    def __init__(
        self,
        node: str,
        board: Board,
        store: StateStore,
        connect: Connect,
        *,
        sleep: Sleep = asyncio.sleep,
        refresh_s: float = REFRESH_S,
    ) -> None:
        followed = NodeList(
            NodeDevicesWanted,
            desired_devices_subject(node),
            STATE_KEY,
            lambda found: board.put(desired=found.devices if found is not None else ()),
        )
        super().__init__(node, followed, store, connect, sleep=sleep, refresh_s=refresh_s)
