"""What is measured of the log on real servers: the storage that NATS leaves it, and what no seal covers yet."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import isnan

import pytest
from prometheus_client import REGISTRY

from gpuledger.compose.log_metrics import measure_log
from gpuledger.deciders.seals.decide import MESSAGES_PER_SEAL
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.events.position import Offset
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.closing import Closing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.ledger.partitions import partition_streams
from gpuledger.ledger.storage import StorageUse
from gpuledger.projection.runner import Runner
from support.ledgers import new_ledger
from support.nats_logins import WrittenServer
from support.projections import QUICK, publish, stop
from support.runners import failures
from support.servers import short_directory
from support.waiting import eventually

LIMIT_BYTES = 2_000_000
PART_BYTES = 100_000
PARTS_MAX = 2 * LIMIT_BYTES // PART_BYTES
USERS = "users: [{user: gpuledger, password: test}]"


class LimitedServer(WrittenServer):
    """A server whose store has a limit of its own."""

    store_bytes_max: int | None = None

    @property
    def url(self) -> str:
        return f"nats://gpuledger:test@{self.address}"

    def _configuration(self, port: int) -> dict[str, object]:
        jetstream = {"store_dir": str(self.directory / "jetstream"), "sync_interval": "always"}
        limit = {"max_file_store": self.store_bytes_max} if self.store_bytes_max else {}
        return {**super()._configuration(port), "jetstream": {**jetstream, **limit}}


@contextmanager
def limited(scope: str) -> Iterator[LimitedServer]:
    """A server that has room for `LIMIT_BYTES`, by a limit of the server or of the account."""
    account = f"accounts: {{L: {{jetstream: {{max_file: {LIMIT_BYTES}}}, {USERS}}}}}"
    with short_directory() as folder:
        server = LimitedServer(folder / "nats", account if scope == "account" else f"authorization: {{{USERS}}}")
        server.store_bytes_max = LIMIT_BYTES if scope == "server" else None
        with server:
            yield server


@asynccontextmanager
async def measuring(ledger: JetStreamLedger, url: str) -> AsyncIterator[None]:
    task = asyncio.create_task(measure_log(ledger, url, interval_s=0.02))
    try:
        yield
    finally:
        await stop(task)


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"gpuledger_{name}", labels)


def refusals() -> float:
    return value("nats_storage_refusals_total") or 0


async def fill(ledger: JetStreamLedger) -> None:
    """Record more than there is room for."""
    for number in range(PARTS_MAX):
        await ledger.publish(Outgoing("ledger.svc.test.node.n.large", f"{number}", b"x" * PART_BYTES))


async def limit_streams(ledger: JetStreamLedger, url: str, max_bytes: int) -> None:
    """Each stream that holds events."""
    several = ledger.partitions > 1
    async with connected(url, name="operator") as connection:
        for stream in partition_streams("LEDGER_1", ledger.partitions) if several else ["LEDGER_1"]:
            info = await connection.jetstream.stream_info(stream)
            await connection.jetstream.update_stream(info.config.evolve(max_bytes=max_bytes))


@pytest.mark.parametrize("partitions", [None, 4])
@pytest.mark.parametrize("scope", ["server", "account", "stream"])
async def test_storage_that_is_exhausted_is_measured(scope: str, partitions: int | None, url: str) -> None:
    """The server's own limit is in no answer, and shows only in what it refuses."""
    with limited(scope) as server:
        async with (
            new_ledger(server.url, partitions, publish_timeout_s=1.0) as ledger,
            measuring(ledger, url),
        ):
            if scope == "stream":
                await limit_streams(ledger, server.url, LIMIT_BYTES)
            before = refusals()
            with pytest.raises(PublishError, match=r"insufficient resources|exceeded"):
                await fill(ledger)
            assert refusals() > before

            async def shown() -> bool:
                used, limit = value("nats_storage_bytes", scope=scope), value("nats_storage_limit_bytes", scope=scope)
                return used is not None and limit == LIMIT_BYTES and used > 0.8 * limit

            async def no_limit() -> bool:
                used = value("nats_storage_bytes", scope="account") or 0
                limits = [value("nats_storage_limit_bytes", scope=one) for one in ("account", "stream")]
                return used > 0.8 * LIMIT_BYTES and limits == [None, None]

            await eventually(no_limit if scope == "server" else shown)


async def test_a_limit_that_is_raised_lets_what_waits_be_recorded(url: str) -> None:
    with limited("stream") as server:
        async with new_ledger(server.url) as ledger:
            await limit_streams(ledger, server.url, PART_BYTES)
            before = refusals()
            waiting = asyncio.create_task(
                ledger.publish(Outgoing("ledger.svc.test.node.n.large", "1", b"x" * PART_BYTES))
            )

            async def refused() -> bool:
                return refusals() > before

            await eventually(refused)
            await limit_streams(ledger, server.url, LIMIT_BYTES)
            assert (await waiting).sequence == 1


async def test_what_no_seal_covers_is_measured(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, failures(range(1, MESSAGES_PER_SEAL + 8)))

    def unsealed(count: int) -> bool:
        return value("log_unsealed_events") == count

    async def all_of_them() -> bool:
        return unsealed(MESSAGES_PER_SEAL + 7)

    async def the_end() -> bool:
        return unsealed(7 + 1)  # and the seal

    async with measuring(ledger, url):
        await eventually(all_of_them)
        task = asyncio.create_task(Runner(SealsProjection(), ledger, url, settings=QUICK).run())
        try:
            await eventually(the_end)
        finally:
            await stop(task)


class AwayLedger(JetStreamLedger):
    """A ledger whose server answers nothing."""

    def __init__(self) -> None:
        """It has no connection."""

    async def storage(self) -> tuple[StorageUse, ...]:
        raise LedgerUnavailableError("away")

    async def head(self) -> Offset:
        raise LedgerUnavailableError("away")

    async def closing(self) -> Closing:
        raise LedgerUnavailableError("away")


async def test_a_replica_that_is_cut_off_serves_nothing_of_before(ledger: JetStreamLedger, url: str) -> None:
    async def is_measured() -> bool:
        used, closing = value("nats_storage_bytes", scope="account"), value("log_closing", step="archiving")
        return value("log_unsealed_events") == 0 and used is not None and closing == 0

    async def is_given_up() -> bool:
        given_up = value("nats_storage_bytes", scope="account"), value("log_closing", step="archiving")
        return isnan(value("log_unsealed_events") or 0) and given_up == (None, None)

    async with measuring(ledger, url):
        await eventually(is_measured)
    async with measuring(AwayLedger(), url):
        await eventually(is_given_up)
    async with measuring(ledger, url):
        await eventually(is_measured)
