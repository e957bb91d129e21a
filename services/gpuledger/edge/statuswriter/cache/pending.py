"""Names that wait for their turn, each once; when there are too many, the one that waits longest is dropped."""

import asyncio


class Waiting:
    """A bounded queue of distinct names."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: dict[str, None] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str) -> str | None:
        """Have a name wait; returns the one that was dropped for it, if any."""
        self._names[name] = None
        self._news.set()
        if len(self._names) <= self._most:
            return None
        dropped = next(iter(self._names))
        del self._names[dropped]
        return dropped

    async def take(self) -> str:
        """The name that waits longest."""
        while not self._names:
            self._news.clear()
            await self._news.wait()
        name = next(iter(self._names))
        del self._names[name]
        return name

    def clear(self) -> None:
        """Forget all."""
        self._names.clear()
