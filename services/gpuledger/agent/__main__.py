"""The agent's process, `python -m gpuledger.agent`, which `gpuledger agent run` becomes.

Its settings are its environment's. What the command line needs is left behind with it, because all of it would stay in
memory.
"""

import os
import sys
from typing import Final

from gpuledger.agent.footprint import ENVIRONMENT, LEFT_OUT, leave_out
from gpuledger.runtime.settings import NATS_URL

WEBSOCKETS: Final = ("ws://", "wss://")


def main() -> int:
    """Run the agent of this node until it is told to stop; returns the exit code."""
    needs_websockets = any(url.startswith(WEBSOCKETS) for url in os.environ.get(NATS_URL, "").split(","))
    leave_out(name for name in LEFT_OUT if not (needs_websockets and name == "aiohttp"))
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    from gpuledger.agent.process import serve  # noqa: PLC0415 - only now, without what is left out

    return serve(os.environ)


if __name__ == "__main__":
    sys.exit(main())
