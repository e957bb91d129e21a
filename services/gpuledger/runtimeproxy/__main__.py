"""The entry point of the proxy's process, `python -m gpuledger.runtimeproxy`, which `gpuledger runtime-proxy` becomes.

It reads its settings from the environment. A process of its own leaves the command line behind, whose modules would
stay in memory on every node.
"""

import os
import sys
from typing import Final

ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "2", "GRPC_VERBOSITY": "ERROR"}
"""The environment that it starts with: little memory held back for threads, and no log lines of gRPC's own."""

EXCLUDED: Final = ("aiohttp", "rich", "better_exceptions")
"""What libraries import only because it is installed."""


def main() -> int:
    """Run the proxy until a signal stops it; returns the exit code."""
    for name in EXCLUDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type] # what the import system asks for
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    from gpuledger.runtimeproxy.process import serve  # noqa: PLC0415 - only now, after the exclusions

    return serve(os.environ)


if __name__ == "__main__":
    sys.exit(main())
