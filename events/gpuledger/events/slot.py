"""Slots: the places in nodes that devices sit in."""

from gpuledger.events.payload import Count, Name, Payload
from gpuledger.events.publishing import BY_IMPORTERS
from gpuledger.events.registry import registry


@registry.event("slot", "declared", BY_IMPORTERS)
class SlotDeclared(Payload):
    """The slot exists, on this node; `index` counts a node's slots from 0."""

    node: Name
    index: Count = 0
