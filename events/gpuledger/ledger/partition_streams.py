"""The streams of a generation of several partitions: made once, and checked whenever it is opened.

The partitions' streams are made first and the order's last, so until all are there, there is no such generation. Only
the commands that close one or fill one alter what its streams take.
"""

from collections.abc import Callable

from nats.js.api import StreamConfig, StreamInfo
from nats.js.errors import NotFoundError

from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import LogLostError, StreamConfigError
from gpuledger.ledger.identity import LedgerIdentity, identity_of, metadata_of
from gpuledger.ledger.intake import stream_intake
from gpuledger.ledger.partitions import (
    Upto,
    before_metadata,
    count_metadata,
    number_metadata,
    order_subject,
    partition_stream,
    partitions_of,
)
from gpuledger.ledger.stream import (
    Generation,
    check_whole,
    create_generation,
    create_ledger,
    create_stream,
    ledger_streams,
    stream_config,
    stream_info,
    stream_name,
    update_stream_config,
)
from gpuledger.ledger.stream_check import refuse_differences
from gpuledger.runtime.settings import PARTITIONS_MAX


def partition_config(
    generation: int, partition: int, partitions: int, replicas: int = 1, *, intake: str = ""
) -> StreamConfig:
    """The configuration that the stream of a partition must have: a stored subject begins as with one partition.

    `intake` is the generation's.
    """
    config = stream_config(generation, replicas).evolve(
        name=partition_stream(stream_name(generation), partition, partitions)
    )
    return stream_intake(generation, intake, partition).configured(config)


def closed_config(config: StreamConfig, generation: int, partition: int) -> StreamConfig:
    """The configuration of the stream of a partition that takes no more events; nobody publishes there."""
    return config.evolve(subjects=[f"archived.{generation}P{partition}.>"], subject_transform=None)


async def make_ledger(
    connection: Connection, ledger_id: str, replicas: int | None = None, partitions: int | None = None
) -> Generation:
    """Make the ledger with this id and so many partitions, or bring an older one up to date, as `create_ledger` does.

    A ledger that is there keeps its partitions.

    Raises:
        StreamConfigError: it has another number of partitions, or streams of a partition are there without their order.
    """
    streams = await ledger_streams(connection)
    if streams:
        newest = max(streams)
        found = partitions_of(streams[newest].config.metadata)
        refuse_other_number(found, partitions)
        made = await create_ledger(connection, ledger_id, replicas)
        if replicas is not None:
            await _replicate(connection, made, replicas)
        return made
    if partitions is None or partitions == 1:
        return await create_ledger(connection, ledger_id, replicas)
    return await create_partitions(connection, LedgerIdentity(ledger_id, 1), replicas, (0,) * partitions)


def refuse_other_number(found: int, asked: int | None) -> None:
    """Refuse to give a ledger another number of partitions than it was made with.

    Raises:
        StreamConfigError: it is another one.
    """
    if asked is not None and asked != found:
        raise StreamConfigError(
            f"The ledger was made with {found} partition{'' if found == 1 else 's'} and keeps them: it cannot have "
            f"{asked}. Leave the number out, or make another ledger."
        )


async def check_partitions(connection: Connection, generation: Generation) -> list[StreamInfo]:
    """Accept the streams of a generation's partitions if events can be read from them.

    Where the generation takes the events of everybody, these can be written to them, too.

    Raises:
        LogLostError: one is gone.
        StreamConfigError: one is not as a partition must be.
        LogCutError: events are missing from one.
    """
    found = []
    for partition in range(generation.partitions):
        name = partition_stream(generation.stream, partition, generation.partitions)
        try:
            info = await stream_info(connection, name)
        except NotFoundError as error:
            raise LogLostError(f"NATS at {connection.address} has no stream {name}") from error
        if generation.current and not generation.intake:
            _check_partition(info, generation, partition)
        check_whole(info)
        found.append(info)
    return found


def _check_partition(info: StreamInfo, generation: Generation, partition: int) -> None:
    """Accept the stream of a partition of a generation that takes the events of everybody."""
    replicas = info.config.num_replicas or 1
    required = partition_config(generation.number, partition, generation.partitions, replicas)
    refuse_differences(info.config, required)
    if info.config.subject_transform != required.subject_transform:
        raise StreamConfigError(f"The stream {required.name} does not store the subjects of a ledger. Restore it.")


async def create_partitions(
    connection: Connection,
    identity: LedgerIdentity,
    replicas: int | None,
    before: Upto,
    *,
    intake: str = "",
    adapt: Callable[[StreamConfig], StreamConfig] | None = None,
) -> Generation:
    """Create the streams of a generation; `before` is how many messages each partition had in those before it.

    `intake` is the generation's, and `adapt` makes the configuration of the order's stream another one.

    Raises:
        StreamConfigError: the server refuses, or takes no ledger of so many partitions.
        LogLostError: a partition's stream is there, with events and without their order.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    partitions, generation = len(before), identity.generation
    if not 1 < partitions <= PARTITIONS_MAX:
        raise StreamConfigError(f"A ledger has 1 to {PARTITIONS_MAX} partitions, not {partitions}.")
    shared = {**metadata_of(identity), **before_metadata(before)}
    for partition, number in enumerate(before):
        config = partition_config(generation, partition, partitions, intake=intake)
        config = config.evolve(metadata={**shared, **number_metadata(partition)})
        await _create_partition(connection, config.evolve(first_seq=number + 1) if number else config, replicas)

    def ordered(config: StreamConfig) -> StreamConfig:
        metadata = {**(config.metadata or {}), **shared, **count_metadata(partitions)}
        config = config.evolve(subjects=[order_subject(generation)], first_seq=None, metadata=metadata)
        return config if adapt is None else adapt(config)

    return await create_generation(connection, identity, replicas, ordered)


async def _create_partition(connection: Connection, config: StreamConfig, replicas: int | None) -> None:
    """Create a partition's stream; an empty one of an attempt that was interrupted becomes this ledger's."""
    try:
        found = await stream_info(connection, str(config.name))
    except NotFoundError:
        await create_stream(connection, config, replicas)
        return
    if found.state.messages:
        identity = identity_of(found.config.metadata, 1)
        raise LogLostError(
            f"NATS at {connection.address} has {config.name} with {found.state.messages:,} events of the ledger "
            f"{identity.ledger_id if identity else 'without an id'}, and no stream with their order"
        )
    is_ours = (config.metadata or {}).items() <= (found.config.metadata or {}).items()
    if not (is_ours and found.config.subjects == config.subjects):
        await update_stream_config(connection, config.evolve(num_replicas=found.config.num_replicas))


async def _replicate(connection: Connection, generation: Generation, replicas: int) -> None:
    for partition in range(generation.partitions if generation.partitions > 1 else 0):
        name = partition_stream(generation.stream, partition, generation.partitions)
        config = (await stream_info(connection, name)).config
        if config.num_replicas != replicas:
            await update_stream_config(connection, config.evolve(num_replicas=replicas))
