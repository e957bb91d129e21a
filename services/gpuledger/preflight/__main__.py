"""The entry point of a check's process, `python -m gpuledger.preflight CHECK`, which `gpuledger preflight run` becomes.

It reads its settings from the environment. A process of its own leaves the command line behind.
"""

import os
import sys

from gpuledger.preflight.process import main

if __name__ == "__main__":
    # gRPC reads it at the first channel: no log lines of its own about each connection that ends.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    sys.exit(main(sys.argv[1:]))
