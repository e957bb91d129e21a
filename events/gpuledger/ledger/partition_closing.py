"""Closes and opens the streams of a generation of several partitions, one after the other.

Each step can be repeated. The order's stream is the one that says how far closing has got: it is marked before the
first partition is closed, takes its last message when all of them are, and is opened when all of them are.
"""

from nats.js.api import StreamConfig, StreamInfo

from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import ClosingError
from gpuledger.ledger.generation_log import Times
from gpuledger.ledger.intake import stream_intake
from gpuledger.ledger.partition_streams import closed_config
from gpuledger.ledger.partitioned_log import PartitionedLog
from gpuledger.ledger.partitions import Upto, is_behind, order_subject, partition_streams
from gpuledger.ledger.sequencer import append_rest
from gpuledger.ledger.stream import archive_subject, generation_of, stream_info, update_stream_config


async def close_partitions(connection: Connection, generation: int, marked: StreamConfig) -> None:
    """Take all subjects of a generation away, and put into the log what its partitions hold by then.

    `marked` is the configuration of its order's stream, which says that it is closed.

    Raises:
        PermissionDeniedError: we may not put events into the log.
        PublishError: the server did not take the rest of the order.
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    await change(connection, marked)
    info = await stream_info(connection, str(marked.name))
    log = PartitionedLog(connection, generation_of(generation, info), Times())
    for partition, name in enumerate(log.streams):
        config = (await stream_info(connection, name)).config
        await change(connection, closed_config(config, generation, partition))
    if is_behind((await log.order.last()).upto, await log.lengths()):
        await change(connection, marked.evolve(subjects=[order_subject(generation)]))
        await append_rest(connection, log.order, log.lengths)
    await change(connection, marked.evolve(subjects=[archive_subject(generation)]))


async def ends_of(connection: Connection, generation: int, info: StreamInfo) -> Upto:
    """How many messages each partition of a closed generation has, given its order's stream; all are in the log.

    Raises:
        ClosingError: they are not.
        LedgerUnavailableError: the server does not answer.
    """
    log = PartitionedLog(connection, generation_of(generation, info), Times())
    upto, lengths = (await log.order.last()).upto, await log.lengths()
    if upto != lengths:
        raise ClosingError(
            f"The partitions of generation {generation} hold {lengths} events, and {upto} are in the log. Run "
            "`gpuledger log archive close` again."
        )
    return upto


async def open_partitions(connection: Connection, generation: int, info: StreamInfo) -> None:
    """Have the partitions of a generation take the events of everybody, given its order's stream.

    Raises:
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    found = generation_of(generation, info)
    for partition, name in enumerate(partition_streams(found.stream, found.partitions)):
        config = (await stream_info(connection, name)).config
        await change(connection, stream_intake(generation, partition=partition).configured(config))


async def change(connection: Connection, config: StreamConfig) -> None:
    """Alter a stream, unless it is as it shall be already; raises as `update_stream_config`."""
    if (await stream_info(connection, str(config.name))).config != config:
        await update_stream_config(connection, config)
