"""Facts and a value of the state store are stored together or not at all, and there is room while enough is left."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from gpuledger.agent.outbox.bounds import DEFAULT_SIZES, VALUE_BYTES_MAX, Sizes
from gpuledger.agent.outbox.entry import QueueBounds
from gpuledger.agent.outbox.errors import StateStoreFullError
from gpuledger.agent.outbox.outbox import CHECK_PERIOD_S, Outbox, open_outbox
from gpuledger.runtime.tasks import end
from support.outbox import NODE, SMALL, Disk, Log, Time, Waits, fact, numbers_in


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "state")


def outbox_on(disk: Disk, sizes: Sizes = DEFAULT_SIZES) -> AbstractAsyncContextManager[Outbox]:
    time = Time()
    return open_outbox(
        disk.folder,
        NODE,
        version="1.0",
        hardware="simulated",
        sizes=sizes,
        clock=time.clock,
        monotonic=time.monotonic,
        sleep=Waits(time, CHECK_PERIOD_S),
        open_spool=disk.open,
    )


async def published(outbox: Outbox) -> list[int]:
    """The numbers of the facts that waited, once the ledger has all."""
    log = Log()
    publishing = asyncio.create_task(outbox.run(log.connect))
    await outbox.drained()
    await end([publishing])
    return numbers_in(log.events())


async def test_facts_and_a_value_are_stored_together_or_not_at_all(disk: Disk, tmp_path: Path) -> None:
    async with outbox_on(disk) as outbox:
        await outbox.record_with([fact(1)], "state", b"1")
        assert outbox.is_durable
        disk.full = True
        await outbox.record_with([fact(2)], "state", b"2")
        assert not outbox.is_durable
        assert outbox.get("state") == b"2"
        disk.crash(tmp_path / "crashed")
        disk.full = False
    async with outbox_on(disk) as outbox:
        assert outbox.get("state") == b"1"
        assert await published(outbox) == [1]


async def test_a_value_that_does_not_fit_takes_its_facts_with_it(disk: Disk) -> None:
    async with outbox_on(disk) as outbox:
        with pytest.raises(StateStoreFullError):
            await outbox.record_with([fact(1)], "state", bytes(VALUE_BYTES_MAX + 1))
        await outbox.record_with([fact(2)], "state", b"2")
        assert await published(outbox) == [2]


async def test_there_is_room_until_three_quarters_are_full(disk: Disk) -> None:
    bounds = QueueBounds(8, 1 << 20)
    async with outbox_on(disk, SMALL._replace(spool=bounds)) as outbox:
        assert outbox.status.waiting == 1
        size = bounds.size * 3 // 4 - outbox.status.size
        assert outbox.has_room(5, size)
        assert not outbox.has_room(6, size)
        assert not outbox.has_room(5, size + 1)
