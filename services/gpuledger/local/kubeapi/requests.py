"""Describes a request to every part of the pipeline."""

from dataclasses import dataclass, field
from datetime import datetime

from gpuledger.local.kubeapi.registry import Target
from gpuledger.local.kubeapi.resources import Context


@dataclass(frozen=True)
class ApiRequest:
    """A request: target, time and user. `warnings` collects the `Warning` headers."""

    target: Target
    now: datetime
    user: str = "system:admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    warnings: list[str] = field(default_factory=list)

    @property
    def context(self) -> Context:
        """The part that strategies see."""
        return Context(self.now, self.user, self.warnings)
