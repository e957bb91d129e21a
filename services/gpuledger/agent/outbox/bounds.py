"""The bounds of the outbox, all of them, in one place."""

from typing import Final, NamedTuple

from gpuledger.agent.outbox.entry import QueueBounds

SPOOL_EVENTS_MAX: Final = 100_000
SPOOL_BYTES_MAX: Final = 128 << 20
"""The bytes that are sent; the file takes about a third more, and keeps the size of its worst day."""

MEMORY_EVENTS_MAX: Final = 4_096
MEMORY_BYTES_MAX: Final = 4 << 20
"""What waits in memory takes about twice that of the process."""

BATCH_EVENTS_MAX: Final = 256
BATCH_BYTES_MAX: Final = 512 << 10

DROPS_MAX: Final = 1_000
"""With so much untold of what was dropped, no epoch on disk is begun that could only add to it."""

VALUES_MAX: Final = 64
VALUE_BYTES_MAX: Final = 64 << 10


class Sizes(NamedTuple):
    """How much may wait on disk and in memory, and how much of it is sent at a time.

    What is at the front of the queue is not given up, so that a queue should take many batches.
    """

    spool: QueueBounds = QueueBounds(SPOOL_EVENTS_MAX, SPOOL_BYTES_MAX)
    memory: QueueBounds = QueueBounds(MEMORY_EVENTS_MAX, MEMORY_BYTES_MAX)
    batch: QueueBounds = QueueBounds(BATCH_EVENTS_MAX, BATCH_BYTES_MAX)


DEFAULT_SIZES: Final = Sizes()
