"""The module itself: whether its prerequisites are met."""

from gpuledger.events.payload import Name, Payload, Text
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.registry import registry


@registry.event("module", "prerequisite-changed", by_service(SourceKind.INVENTORY))
class ModulePrerequisiteChanged(Payload):
    """Whether Node Feature Discovery or agents tell which nodes have GPUs; while neither does, there is no inventory."""

    met: bool
    reason: Name
    message: Text = ""
