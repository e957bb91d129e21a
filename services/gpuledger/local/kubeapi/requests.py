"""What every part of the pipeline knows of a request, and whom it may have to ask before anything is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuledger.edge.kube.schema.causes import Object
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


class Admission:
    """Whom to ask before an object is stored; this one asks nobody."""

    async def mutate(
        self, request: Request, operation: str, obj: Object | None, old: Object | None, options: Mapping[str, Any]
    ) -> Object | None:
        """The object as webhooks want it."""
        return obj

    async def validate(
        self, request: Request, operation: str, obj: Object | None, old: Object | None, options: Mapping[str, Any]
    ) -> None:
        """Let webhooks refuse it.

        Raises:
            ApiError: one of them does.
        """

    def is_asked(self, request: Request) -> bool:
        """Whether anybody is asked at all."""
        return False
