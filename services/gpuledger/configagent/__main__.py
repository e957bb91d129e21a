"""The entry point of the process, `python -m gpuledger.configagent`, which `gpuledger config-agent run` becomes.

It reads its settings from the environment. A process of its own leaves the command line behind, whose modules would
stay in memory on every node.
"""

import os
import sys
from typing import Final

ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "2"}
"""The environment that it starts with: little memory held back for threads."""

EXCLUDED: Final = ("rich", "better_exceptions")
"""What libraries import only because it is installed."""


def main() -> int:
    """Run the agent until a signal stops it; returns the exit code."""
    for name in EXCLUDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type] # what the import system asks for
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    from gpuledger.configagent.process import serve  # noqa: PLC0415 - only now, after the exclusions

    return serve(os.environ)


if __name__ == "__main__":
    sys.exit(main())
