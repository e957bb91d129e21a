"""How much memory a server that is written in Go may take before its runtime collects garbage more often.

Without a limit the heap of nats-server doubles between two collections, and what it has read of the log stays there
until the next one. The limit is a soft one, which Go reads from `GOMEMLIMIT`: what the server really needs it keeps.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

LIMIT: Final = "GOMEMLIMIT"

EMBEDDED_BYTES: Final = 768 * 1024 * 1024
"""For a server on a laptop."""

CONTAINER_SHARE: Final = 0.8
"""Of a container's memory; the rest is for its other process, and for files that the kernel keeps."""

CONTAINER_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


def embedded_limit(environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment of an embedded server has beside this one; a limit that is set there holds."""
    return {} if LIMIT in environment else {LIMIT: str(EMBEDDED_BYTES)}


def container_limit(environment: Mapping[str, str], file: Path = CONTAINER_LIMIT) -> dict[str, str]:
    """What the environment of a server in a container has beside this one; nothing where its memory has no limit."""
    if LIMIT in environment:
        return {}
    try:
        found = file.read_text(encoding="ascii").strip()
    except OSError:  # no container, or cgroups of version 1
        return {}
    return {LIMIT: str(int(int(found) * CONTAINER_SHARE))} if found.isdecimal() else {}
