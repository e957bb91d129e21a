"""`make bench` starts here: `python tests/bench/main.py [--quick]`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from bench.suite import main

    main()
