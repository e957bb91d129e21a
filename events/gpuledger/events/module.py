"""The module itself: whether what it builds on is there."""

from gpuledger.events.payload import Name, Payload, Text
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.registry import registry


@registry.event("module", "prerequisite-changed", by_service(SourceKind.INVENTORY))
class ModulePrerequisiteChanged(Payload):
    """Whether Node Feature Discovery is there and new enough; while it is not, nothing is inventoried."""

    met: bool
    reason: Name
    message: Text = ""
