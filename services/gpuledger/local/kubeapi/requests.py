"""What every part of the pipeline knows of a request."""

from dataclasses import dataclass, field
from datetime import datetime

from gpuledger.local.kubeapi.registry import Target
from gpuledger.local.kubeapi.resources import Context


@dataclass(frozen=True)
class Request:
    """Who asks for what, and when. `warnings` collects what goes into `Warning` headers."""

    target: Target
    now: datetime
    user: str = "system:admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    warnings: list[str] = field(default_factory=list)

    @property
    def context(self) -> Context:
        """What a strategy sees of it."""
        return Context(self.now, self.user, self.warnings)
