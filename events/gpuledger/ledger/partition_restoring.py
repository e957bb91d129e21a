"""Has the streams of a generation of several partitions take what a restore fills it with, and opens them again.

Each step can be repeated. The order's stream is the one that says how far a restore has got: it is marked before the
first partition is fenced, fenced when all of them are and hold nothing, and opened when all of them are. So while it is
fenced, it holds no event but those of the restore, in the order of the archive.
"""

from nats.js.api import StreamConfig, StreamInfo, SubjectTransform

from gpuledger.ledger.connect import Connection
from gpuledger.ledger.intake import filled_order_subject, stream_intake
from gpuledger.ledger.partition_closing import change, open_partitions
from gpuledger.ledger.partition_streams import check_partitions
from gpuledger.ledger.partitions import order_subject, partition_streams
from gpuledger.ledger.permissions import RESTORE_ROOT
from gpuledger.ledger.stream import RESTORING, Generation, stream_info


async def recorded_in(connection: Connection, generation: Generation, info: StreamInfo) -> int:
    """How many events a generation's streams hold, or up to which number, given its stream or that of its order.

    Of several partitions that is more than is in the log while nobody puts events into it.

    Raises:
        LogLostError: the stream of a partition is gone.
        StreamConfigError: one is not as a partition must be.
        LogCutError: events are missing from one.
    """
    if generation.partitions == 1:
        return info.state.last_seq
    # What is being archived or fenced has some streams that take events and some that do not.
    is_changing = generation.intake or not generation.current
    found = generation._replace(current=False) if is_changing else generation
    return sum(one.state.last_seq for one in await check_partitions(connection, found))


def is_order_fenced(generation: int, info: StreamInfo) -> bool:
    """Whether the order takes what the restore appends, and nothing else; then all partitions do."""
    return info.config.subjects == [filled_order_subject(generation)]


def fenced_order(config: StreamConfig, generation: int) -> StreamConfig:
    """The configuration of the order's stream while a restore fills its generation."""
    subject = filled_order_subject(generation)
    transform = SubjectTransform(src=subject, dest=order_subject(generation))
    return config.evolve(subjects=[subject], subject_transform=transform)


async def fence_partitions(connection: Connection, generation: Generation, marked: StreamConfig) -> bool:
    """Have an empty generation take the events of the restore alone; False where somebody was faster.

    `marked` is the configuration of its order's stream, which says that a restore fills it.

    Raises:
        LogLostError: the stream of a partition is gone.
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    number = generation.number
    await change(connection, marked)
    for partition, name in enumerate(partition_streams(generation.stream, generation.partitions)):
        config = (await stream_info(connection, name)).config
        await change(connection, stream_intake(number, RESTORE_ROOT, partition).configured(config))
    info = await stream_info(connection, generation.stream)
    if await recorded_in(connection, generation._replace(intake=RESTORE_ROOT), info):
        metadata = {key: value for key, value in (marked.metadata or {}).items() if key != RESTORING}
        await open_restored(connection, number, info, marked.evolve(metadata=metadata))
        return False
    await change(connection, fenced_order(marked, number))
    return True


async def open_restored(connection: Connection, generation: int, info: StreamInfo, opened: StreamConfig) -> None:
    """Have a generation take the events of everybody, given its order's stream: the partitions first, the order last.

    `opened` is the configuration of that stream, but for its subjects. What partitions take before is behind all that
    the restore recorded, because the log lacks none of that.

    Raises:
        StreamConfigError: the server refuses.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    await open_partitions(connection, generation, info)
    await change(connection, opened.evolve(subjects=[order_subject(generation)], subject_transform=None))
