"""Keeps the agent's memory small by excluding modules that libraries import only because they are installed.

Every node runs an agent, whose memory the node's workloads lose. The NATS client imports aiohttp for WebSockets, and
structlog imports rich for coloured tracebacks; the agent needs neither. Import this before any of those libraries;
docs/node-agent.md has the measurements.
"""

import sys
from collections.abc import Iterable
from typing import Final

ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "2", "GRPC_VERBOSITY": "ERROR"}
"""The environment that the agent starts with: few malloc arenas, each of which holds memory back for its threads, and
no log lines of gRPC's own about each connection that ends."""

EXCLUDED: Final = ("aiohttp", "rich", "better_exceptions")


def exclude_modules(modules: Iterable[str] = EXCLUDED) -> None:
    """Make imports of these modules fail from now on, as if they were not installed."""
    for name in modules:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type] # what the import system asks for
