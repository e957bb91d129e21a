"""Nodes: machines that hold GPUs."""

from gpuledger.events.payload import Count, Name, Payload
from gpuledger.events.registry import registry


@registry.event("node", "registered", publisher="importers")
class NodeRegistered(Payload):
    """A node is part of the fleet, with these resources; a later one replaces what was known."""

    gpu_count: Count | None = None
    gpu_model: Name | None = None
    cpu_milli: Count | None = None
    memory_mib: Count | None = None


@registry.event("node", "decommissioned", publisher="importers")
class NodeDecommissioned(Payload):
    """The node has left the fleet."""
