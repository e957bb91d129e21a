"""What nodes' agents were told to do with devices of pools, as rows.

The decider alone keeps this, to tell only what is new. A list replaces the one before it in the order of the log.
"""

from collections.abc import Iterable, Mapping
from sys import intern

import orjson

from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.pools.rows import PoolWanted
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.node import NodeDevicesWanted, WantedDevice

NOTHING = "[]"
"""The list of a node none of whose devices belongs to a pool."""


def text_of(devices: Iterable[WantedDevice]) -> str:
    """A list as its row has it; equal lists have the same."""
    return json_text([one.model_dump(mode="json", exclude_none=True) for one in devices])


def last_list(state: PoolFacts, node: str) -> Mapping[str, WantedDevice]:
    """What the node's agent was told last, by device."""
    known = state.wanted.get(node)
    told = [] if known is None else orjson.loads(known.devices)
    return {one["device"]: WantedDevice.model_validate(one) for one in told}


def _devices_wanted(state: PoolFacts, fact: Fact, data: NodeDevicesWanted) -> None:
    state.wanted.put(PoolWanted(intern(fact.event.subject), text_of(data.devices), fact.event.time))


WANTED_HANDLERS: Handlers = {NodeDevicesWanted: _devices_wanted}
