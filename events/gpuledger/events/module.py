"""The module itself: whether what it builds on is there."""

from gpuledger.events.payload import Name, Payload, Text
from gpuledger.events.registry import registry


@registry.event("module", "prerequisite-changed", publisher="inventory")
class ModulePrerequisiteChanged(Payload):
    """Whether Node Feature Discovery is there and new enough; while it is not, nothing is inventoried."""

    met: bool
    reason: Name
    message: Text = ""
