"""Slots: the places for devices in nodes."""

from gpuledger.events.payload import Count, Name, Payload
from gpuledger.events.publishing import BY_IMPORTERS
from gpuledger.events.registry import registry


@registry.event("slot", "declared", BY_IMPORTERS)
class SlotDeclared(Payload):
    """The slot exists in this node; `index` counts a node's slots from 0."""

    node: Name
    index: Count = 0
