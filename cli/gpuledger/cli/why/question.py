"""What `gpuledger why` is asked."""

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from gpuledger.cli.cluster import Access
from gpuledger.cli.times import format_time


class Question(NamedTuple):
    """What is asked: `name` is `namespace/name`; without `access` Kubernetes is not asked."""

    name: str
    at: datetime | None
    node: str | None
    access: Access | None
    data_dir: Path | None

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self.name.partition("/")[0]

    @property
    def kube(self) -> Access | None:
        """How Kubernetes is asked how things stand; None in the past, which it does not know."""
        return self.access if self.at is None else None

    @property
    def moment(self) -> str:
        """`now`, or the time."""
        return "now" if self.at is None else format_time(self.at)
