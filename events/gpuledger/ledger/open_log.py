"""Opens the log of one generation, as somebody does who neither publishes nor relies on what is read."""

from gpuledger.events.position import is_origin
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import LogCutError
from gpuledger.ledger.generation_log import GenerationLog, StreamLog, Times
from gpuledger.ledger.identity import Predecessor, anchor_digest
from gpuledger.ledger.partitioned_log import PartitionedLog
from gpuledger.ledger.stream import Generation


def open_log(connection: Connection, generation: Generation, times: Times | None = None) -> GenerationLog:
    """The log of a generation, in one stream or in several partitions."""
    opened = PartitionedLog if generation.partitions > 1 else StreamLog
    return opened(connection, generation, times or Times())


async def end_of(connection: Connection, generation: Generation) -> Predecessor:
    """How a generation ends that takes no more events.

    Raises:
        LogCutError: it lacks its last event.
        LedgerUnavailableError: the server does not answer.
    """
    log = open_log(connection, generation)
    head = await log.head()
    if is_origin(head):
        return Predecessor(head, "")
    last = await log.message_at(head)
    if last is None:
        raise LogCutError(f"{generation.stream} holds no event at its end")
    return Predecessor(head, anchor_digest(last.subject, last.data))
