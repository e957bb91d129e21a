"""Ports that a test chooses long before a server listens on them.

The embedded servers find theirs when they start, and try the next one where another was quicker. A test that writes a
port into somebody's configuration cannot. Its ports are therefore from a range of their own, above the embedded
servers' and below that of outgoing connections, of which each worker of a run has its own part and gives in turn.
"""

import os
from itertools import count, islice

from gpuledger.local.servers.ports import FIRST_PORT, PORTS, is_free

FIRST_CHOSEN = FIRST_PORT + PORTS
CHOSEN_PORTS = 2_700
"""Linux gives outgoing connections ports from 32768 on."""
WORKERS = 9
"""So many workers of one run have parts of their own; each of more shares its part with another."""
PART = CHOSEN_PORTS // WORKERS

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
_turns = count()


def free_ports(number: int) -> list[int]:
    """Ports that nobody uses, and that nobody is given again before this process has given its other ones.

    Raises:
        AssertionError: all ports of this worker are in use.
    """
    turn = (FIRST_CHOSEN + _worker * PART + next(_turns) % PART for _ in range(PART))
    ports = list(islice(filter(is_free, turn), number))
    assert len(ports) == number, f"all {PART} ports that this worker may choose are in use"
    return ports
