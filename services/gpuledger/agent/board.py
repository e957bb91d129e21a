"""The agent's blackboard: the latest value that each part found, and a way to wait for the next change.

Each value has one writer, which replaces it as a whole; parts read what others wrote and never call each other. The
board makes no decisions, and neither stores nor sends anything.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from gpuledger.agent.hardware.api import Survey, Unread, Unregistered
from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.node import WantedDevice
from gpuledger.events.shares import PodShare
from gpuledger.events.sharing import NodeDevicesShared


class DeviceUnit(NamedTuple):
    """One allocatable unit: the id that the kubelet uses, and the device behind it.

    `uuid` names the device that the container sees, a card or a MIG instance; several units share it where the device
    is time-sliced.
    """

    id: str
    uuid: str
    address: str


class ResourceOffer(NamedTuple):
    """The units of one extended resource on this node, in order."""

    resource: str
    units: tuple[DeviceUnit, ...]


@dataclass(frozen=True, slots=True)
class BoardState:
    """The latest values; None: not found out yet.

    Discovery writes `survey`, health `unfit` (why each unusable card is so, by address), `unregistered` (why errors of
    a card do not reach the agent, by address) and `unread` (the readings that a card's poll failed to get), desired
    devices `desired`, pod resources `in_use` (the unit ids that containers hold, by resource) and `allocations`, setup
    `offers`, shared devices `shared` and allocated devices `allocated` (what pods hold of those).
    """

    survey: Survey | None = None
    unfit: Mapping[str, str] | None = None
    unregistered: Mapping[str, Unregistered] = field(default_factory=dict)
    unread: Mapping[str, tuple[Unread, ...]] = field(default_factory=dict)
    desired: tuple[WantedDevice, ...] | None = None
    in_use: Mapping[str, frozenset[str]] | None = None
    allocations: tuple[AllocationObserved, ...] = ()
    offers: tuple[ResourceOffer, ...] = ()
    shared: NodeDevicesShared | None = None
    allocated: tuple[PodShare, ...] = ()

    @property
    def has_cards(self) -> bool | None:
        """Whether the node has cards; None before the first survey."""
        return None if self.survey is None else bool(self.survey.cards)


class Board:
    """Holds the latest values and wakes whoever waits for a change."""

    def __init__(self) -> None:
        self.state = BoardState()
        self._changed = asyncio.Event()

    def put(self, **values: Any) -> None:  # noqa: ANN401 - `BoardState` types them
        """Replace some of the values; equal values wake nobody."""
        state = replace(self.state, **values)
        if state != self.state:
            self.state = state
            self._changed.set()
            self._changed = asyncio.Event()

    async def changes(self) -> AsyncIterator[BoardState]:
        """The current state, and then each later one; a slow reader skips states that were overwritten meanwhile."""
        last: BoardState | None = None
        while True:
            changed = self._changed
            if self.state is last:
                await changed.wait()
                continue
            last = self.state
            yield last
