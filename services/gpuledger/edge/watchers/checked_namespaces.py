"""The namespaces whose pods get preflight checks at present. Whoever adds the checks says which, and watchers follow.

Only there does a webhook see to it that nobody else sets the marks by which pods with checks are known.
"""

import asyncio


class CheckedNamespaces:
    """The `names` of the namespaces; none until somebody has said which."""

    def __init__(self, names: frozenset[str] = frozenset()) -> None:
        self.names = names
        self._waiting: set[asyncio.Event] = set()

    def set(self, names: frozenset[str]) -> None:
        """Those of these names get checks from now on, and no others."""
        self.names = names
        for one in self._waiting:
            one.set()

    async def differ(self, names: frozenset[str]) -> None:
        """Return once they are others than these."""
        while self.names == names:
            changed = asyncio.Event()
            self._waiting.add(changed)
            try:
                await changed.wait()
            finally:
                self._waiting.discard(changed)
