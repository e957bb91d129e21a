"""The entry point of the agent's process, `python -m gpuledger.agent`, which `gpuledger agent run` becomes.

It reads its settings from the environment. A process of its own leaves the command line behind, whose modules would
stay in memory.
"""

import os
import sys

from gpuledger.agent.footprint import ENVIRONMENT, EXCLUDED, exclude_modules
from gpuledger.runtime.settings import uses_websockets


def main() -> int:
    """Run the agent of this node until a signal stops it; returns the exit code."""
    needed = ("aiohttp",) if uses_websockets(os.environ) else ()
    exclude_modules(name for name in EXCLUDED if name not in needed)
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    from gpuledger.agent.process import serve  # noqa: PLC0415 - only now, after the exclusions

    return serve(os.environ)


if __name__ == "__main__":
    sys.exit(main())
