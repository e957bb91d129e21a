"""The module itself: whether its prerequisites are met."""

from gpuledger.events.payload import Name, Payload, Text
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.registry import registry


@registry.event("module", "prerequisite-changed", by_service(SourceKind.INVENTORY))
class ModulePrerequisiteChanged(Payload):
    """Whether Node Feature Discovery, or else agents, tell which nodes have GPUs; if neither, there is no inventory."""

    met: bool
    reason: Name
    message: Text = ""
