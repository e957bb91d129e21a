"""Keeps out of the agent's process what libraries import only because it is installed. To be imported before them.

An agent runs on every node, and its memory is taken from the node's work. The NATS client imports aiohttp for
WebSockets, structlog rich for colourful tracebacks; neither happens here. What each is worth, docs/node-agent.md says.
"""

import sys
from collections.abc import Iterable
from typing import Final

ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "2", "GRPC_VERBOSITY": "ERROR"}
"""With what an agent is begun. Threads take memory from few places, of which each would keep some for itself; and gRPC
writes no lines of its own, in a form of its own, about each connection that ends.
"""

LEFT_OUT: Final = ("aiohttp", "rich", "better_exceptions")


def leave_out(modules: Iterable[str] = LEFT_OUT) -> None:
    """Have imports of these modules fail from now on, as if they were not installed."""
    for name in modules:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type] # what the import system asks for
