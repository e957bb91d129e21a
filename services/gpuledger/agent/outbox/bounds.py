"""All bounds of the outbox, in one place. Pure."""

from typing import Final, NamedTuple

from gpuledger.agent.outbox.entry import QueueBounds

SPOOL_EVENTS_MAX: Final = 100_000
SPOOL_BYTES_MAX: Final = 128 << 20
"""The bytes of the messages; the file takes about a third more, and never shrinks below its largest size."""

MEMORY_EVENTS_MAX: Final = 4_096
MEMORY_BYTES_MAX: Final = 4 << 20
"""Events in memory take about twice that of the process."""

BATCH_EVENTS_MAX: Final = 256
BATCH_BYTES_MAX: Final = 512 << 10

DROPS_MAX: Final = 1_000
"""With so many unrecorded drops, no new epoch begins on disk that could only add to them."""

VALUES_MAX: Final = 64
VALUE_BYTES_MAX: Final = 64 << 10


class Sizes(NamedTuple):
    """The bounds on disk, in memory and of a batch.

    The front of the queue is never dropped, so that a queue should hold many batches.
    """

    spool: QueueBounds = QueueBounds(SPOOL_EVENTS_MAX, SPOOL_BYTES_MAX)
    memory: QueueBounds = QueueBounds(MEMORY_EVENTS_MAX, MEMORY_BYTES_MAX)
    batch: QueueBounds = QueueBounds(BATCH_EVENTS_MAX, BATCH_BYTES_MAX)


DEFAULT_SIZES: Final = Sizes()
