"""Shared devices: the parts that follow which devices the node shares, and what pods hold of them."""

import asyncio
from typing import Final

from gpuledger.agent.board import Board
from gpuledger.agent.newest_list import Connect, ListFollower, NodeList
from gpuledger.agent.part import StateStore
from gpuledger.events.shares import NodeDevicesAllocated
from gpuledger.events.sharing import NodeDevicesShared
from gpuledger.ledger.permissions import allocated_devices_subject, shared_devices_subject
from gpuledger.runtime.clock import Sleep

SHARED_REFRESH_S: Final = 120.0
"""How often the ledger is queried without a notification; most nodes share nothing, and a fleet has many."""

SHARED_KEY: Final = "shared devices"
ALLOCATED_KEY: Final = "allocated devices"


class SharedDevicesFollower(ListFollower[NodeDevicesShared]):
    """Puts what the node shares on the board; see `gpuledger.agent.part.Part`."""

    name = "shared devices"
    stuck_after_s = 4 * SHARED_REFRESH_S

    def __init__(
        self,
        node: str,
        board: Board,
        store: StateStore,
        connect: Connect,
        *,
        sleep: Sleep = asyncio.sleep,
        refresh_s: float = SHARED_REFRESH_S,
    ) -> None:
        subject = shared_devices_subject(node)
        followed = NodeList(NodeDevicesShared, subject, SHARED_KEY, lambda found: board.put(shared=found))
        super().__init__(node, followed, store, connect, sleep=sleep, refresh_s=refresh_s)


class AllocatedDevicesFollower(ListFollower[NodeDevicesAllocated]):
    """Puts what pods hold of the shared devices on the board; see `gpuledger.agent.part.Part`."""

    name = "allocated devices"
    stuck_after_s = 4 * SHARED_REFRESH_S

    def __init__(
        self,
        node: str,
        board: Board,
        store: StateStore,
        connect: Connect,
        *,
        sleep: Sleep = asyncio.sleep,
        refresh_s: float = SHARED_REFRESH_S,
    ) -> None:
        followed = NodeList(
            NodeDevicesAllocated,
            allocated_devices_subject(node),
            ALLOCATED_KEY,
            lambda found: board.put(allocated=found.pods if found is not None else ()),
        )
        super().__init__(node, followed, store, connect, sleep=sleep, refresh_s=refresh_s)
