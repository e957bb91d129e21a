"""Describes a request to every part of the pipeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuledger.local.kubeapi.registry import Target
from gpuledger.local.kubeapi.resources import Context


@dataclass(frozen=True)
class ApiRequest:
    """A request: target, time and user. `warnings` collects the `Warning` headers; `extra` are fields of the user."""

    target: Target
    now: datetime
    user: str = "system:admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    warnings: list[str] = field(default_factory=list)
    extra: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def context(self) -> Context:
        """The part that strategies see."""
        return Context(self.now, self.user, self.warnings)
