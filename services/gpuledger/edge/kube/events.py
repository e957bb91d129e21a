"""What services share that record Kubernetes Events: a bounded queue of those that wait, and how Events are written.

Events are a courtesy. Where there are too many, or the server does not take one, it is dropped and counted; nothing
else may ever wait for them.
"""

import asyncio
from datetime import datetime
from hashlib import sha256
from typing import Final

NOTE_BYTES_MAX: Final = 1024
NAME_CHARS_MAX: Final = 200
HASH_LENGTH: Final = 16


class PendingQueue:
    """A bounded queue of distinct names; where there are too many, the one that waits longest is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: dict[str, None] = {}
        self._added = asyncio.Event()

    def add(self, name: str) -> str | None:
        """Add a name at the end; returns the one that was dropped for it, if any."""
        self._names[name] = None
        self._added.set()
        if len(self._names) <= self._most:
            return None
        dropped = next(iter(self._names))
        del self._names[dropped]
        return dropped

    async def take(self) -> str:
        """The name that waits longest."""
        while not self._names:
            self._added.clear()
            await self._added.wait()
        name = next(iter(self._names))
        del self._names[name]
        return name

    def clear(self) -> None:
        """Forget all."""
        self._names.clear()


def event_name(name: str, *parts: str) -> str:
    """The name of an Event about an object: the object's, and a digest of what else distinguishes the Event."""
    digest = sha256("\n".join(parts).encode()).hexdigest()
    return f"{name[:NAME_CHARS_MAX].rstrip('-.')}.{digest[:HASH_LENGTH]}"


def note_of(text: str) -> str:
    """A note as an Event can hold it."""
    return text.encode()[:NOTE_BYTES_MAX].decode(errors="ignore")


def micro_time(time: datetime) -> str:
    """A time as Events have it, with six digits of fraction."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
