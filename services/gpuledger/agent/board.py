"""Where the parts of the agent meet: the latest of what each of them found, and a way to wait for the next.

Each value has one writer and is replaced as a whole. A part reads what others wrote and never calls them; nothing here
decides, keeps or sends.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gpuledger.agent.hardware.api import Survey
from gpuledger.events.node import WantedDevice


class Unit(NamedTuple):
    """One thing that a container may ask for: the id that the kubelet knows, and what is behind it.

    `uuid` is what the container gets to see, a card's or a MIG instance's; several units share it where it is sliced.
    """

    id: str
    uuid: str
    address: str


class Offer(NamedTuple):
    """The units of one extended resource on this node, in order."""

    resource: str
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the parts found last. None: not known yet.

    `survey` is discovery's. `unfit` is health's: why each card that cannot be used is so, by address. `wanted` is what
    pools ask for, `in_use` the ids of units that containers have, by resource, as the kubelet says, and `offers` what
    was set up for pools.
    """

    survey: Survey | None = None
    unfit: Mapping[str, str] | None = None
    wanted: tuple[WantedDevice, ...] | None = None
    in_use: Mapping[str, frozenset[str]] | None = None
    offers: tuple[Offer, ...] = ()


class Board:
    """Holds what the parts found, and wakes who waits for a change."""

    def __init__(self) -> None:
        self.seen = Seen()
        self._changed = asyncio.Event()

    def put(self, **found: Any) -> None:  # noqa: ANN401 - `Seen` says what may stand here
        """Replace some of the values; nobody is woken where nothing differs."""
        seen = replace(self.seen, **found)
        if seen != self.seen:
            self.seen = seen
            self._changed.set()
            self._changed = asyncio.Event()

    async def changes(self) -> AsyncIterator[Seen]:
        """What stands there now, and then what does after changes; what is overwritten meanwhile is passed over."""
        last: Seen | None = None
        while True:
            changed = self._changed
            if self.seen is last:
                await changed.wait()
                continue
            last = self.seen
            yield last
