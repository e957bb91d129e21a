"""What a part keeps over a restart of the agent: small values by name, on the node's disk."""

from typing import Protocol


class Keep(Protocol):
    """Small values by name. Where the disk takes nothing, they last as long as the process."""

    def get(self, name: str) -> bytes | None:
        """The value that was put last, or None."""
        ...

    async def put(self, name: str, value: bytes) -> None:
        """Replace a value; it is on disk when this returns, unless the disk takes nothing, which is told elsewhere."""
        ...
