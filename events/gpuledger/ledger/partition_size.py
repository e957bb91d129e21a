"""How large the log of a generation is, in one stream or in several partitions."""

from typing import NamedTuple

from nats.js.api import StreamInfo

from gpuledger.events.position import Offset
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.identity import identity_of
from gpuledger.ledger.order import Order
from gpuledger.ledger.partition_streams import check_partitions
from gpuledger.ledger.partitions import partitions_of
from gpuledger.ledger.stream import Generation


class LogSize(NamedTuple):
    """What a generation's streams hold, and the last place in the log, behind which events may wait in partitions."""

    partitions: int
    events: int
    size_bytes: int
    head: Offset


async def log_size(connection: Connection, number: int, info: StreamInfo) -> LogSize:
    """The size of a current generation, given its stream; with several partitions raises as `check_partitions` does."""
    metadata = info.config.metadata
    partitions = partitions_of(metadata)
    if partitions == 1:
        return LogSize(1, info.state.messages, info.state.bytes, info.state.last_seq)
    generation = Generation(number, True, identity_of(metadata, number), partitions)
    states = [one.state for one in await check_partitions(connection, generation)]
    upto = (await Order(connection, generation).last()).upto
    size_bytes = sum(state.bytes for state in (info.state, *states))
    return LogSize(partitions, sum(state.messages for state in states), size_bytes, sum(upto))
