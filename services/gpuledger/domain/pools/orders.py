"""Folds the orders that were given to nodes' agents: what to do with the devices of pools.

Only the decider keeps them, to give only new ones. A list replaces the one before it in the order of the log.
"""

from collections.abc import Iterable, Mapping
from sys import intern

import orjson

from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.pools.rows import NodeOrders
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.node import NodeDevicesWanted, WantedDevice


def orders_text(devices: Iterable[WantedDevice]) -> str:
    """A list as its row has it; equal lists have the same text."""
    return json_text([one.model_dump(mode="json", exclude_none=True) for one in devices])


def last_orders(state: PoolFacts, node: str) -> Mapping[str, WantedDevice]:
    """The last list that the node's agent was given, by device."""
    row = state.orders.get(node)
    last = [] if row is None else orjson.loads(row.devices)
    return {one["device"]: WantedDevice.model_validate(one) for one in last}


def _given(state: PoolFacts, fact: Fact, data: NodeDevicesWanted) -> None:
    row = NodeOrders(intern(fact.event.subject), orders_text(data.devices), fact.event.time)
    state.orders.put(row)
    state.order_ends.note(row)


ORDER_HANDLERS: Handlers = {NodeDevicesWanted: _given}
