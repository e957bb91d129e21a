"""The checks of `gpuledger doctor` on PostgreSQL, the projections' rows, NATS and the ledger's stream.

No check changes anything, nor creates a stream where there is none.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from nats.js.api import PeerInfo, StreamInfo

from gpuledger.db.engine import AsyncConnection, connect, place_of
from gpuledger.db.errors import DatabaseError
from gpuledger.db.locks import EDGE_LOCKS, LockHolder, lock_holders, try_lock, unlock
from gpuledger.db.pooler import is_pooled
from gpuledger.db.revision import HEAD_REVISION, Schema, check_connection
from gpuledger.db.views import READER_ROLE
from gpuledger.events.position import Generations, Position, generations_of, is_origin, lag
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.connect import Connection, connected, refuse_old_server
from gpuledger.ledger.errors import LedgerError, LogChangedError, LogLostError, LogRestoredError
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.ledger.partition_size import log_size
from gpuledger.ledger.stream import REPLICAS_IN_CLUSTER, check_current, ledger_streams, stream_name
from gpuledger.projection.checkpoint import LIVE, NEXT, PREV, Checkpoint, schema_of
from gpuledger.projection.continuity import confirm_log
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import GenerationMismatchError
from gpuledger.projection.runner import writer_lock
from gpuledger.projection.store import ProjectionStore
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.settings import ANONYMOUS, NATS_REPLICAS, NatsIdentity
from gpuledger.tools.archive.past import ArchivedGenerations
from gpuledger.tools.disputes import DISPUTED_SHOWN_MAX, DisputedCard, disputed_cards
from gpuledger.tools.own_views import lost_views, lost_views_text


class Status(StrEnum):
    """`failed` keeps gpuledger from working; `warning` does not, but somebody should know."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Check(NamedTuple):
    """`detail` says what was found and, unless all is well, what to do next."""

    check: str
    status: Status
    detail: str


def ok(check: str, detail: str) -> Check:
    """A check that passed."""
    return Check(check, Status.OK, detail)


def warning(check: str, detail: str) -> Check:
    """A check that passed with something to know."""
    return Check(check, Status.WARNING, detail)


def failed(check: str, detail: str) -> Check:
    """A check that failed."""
    return Check(check, Status.FAILED, detail)


MAJOR_MIN = 15
SKEW_WARN_S = 1.0

_POOLED = (
    "A pooler stands before PostgreSQL; it keeps sessions apart. How soon the lock of a machine that vanished is free "
    "follows from its own TCP settings: let it use keepalives and tcp_user_timeout, or name PostgreSQL itself."
)
_ROLE = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)"
_LEFT = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename = ANY(%s)"
_OUTBOX = "SELECT count(*) FROM gpuledger.outbox WHERE projection = %s AND status <> 'sent'"
_GAPS = "SELECT count(*) FROM gpuledger_live.gap WHERE closed_at IS NULL"


class FoundLog(NamedTuple):
    """The log that rows are compared with; None where it cannot be used. `is_absent`: NATS answers, and has none."""

    ledger: Ledger | None = None
    is_absent: bool = False


class DatabaseChecks:
    """Checks a PostgreSQL server, and the rows in it beside the log."""

    def __init__(self, url: str, projections: Sequence[Projection], log: FoundLog, clock: Clock = system_clock) -> None:
        self._url = url
        self._projections = projections
        self._log = log
        self._clock = clock

    async def run(self) -> AsyncIterator[Check]:
        """The checks, as they are made."""
        try:
            async with connect(self._url, application_name="gpuledger doctor") as connection:
                yield _server(connection.info.server_version, place_of(self._url))
                if is_pooled(connection, await _one(connection, "SELECT pg_backend_pid()")):
                    yield warning("pooler", _POOLED)
                yield await self._skew(connection)
                yield await self._leaders(connection)
                async for check in self._schema(connection):
                    yield check
        except (DatabaseError, psycopg.Error) as error:
            yield failed("postgresql server", str(error).strip())

    async def _skew(self, connection: AsyncConnection) -> Check:
        before = self._clock()
        server_time = await _one(connection, "SELECT clock_timestamp()")
        return skew_check(before, server_time, self._clock())

    async def _leaders(self, connection: AsyncConnection) -> Check:
        locks = {projection.name: writer_lock(projection.name) for projection in self._projections}
        holders = await lock_holders(connection, (*locks.values(), *EDGE_LOCKS))
        edge = {lock: holders[lock] for lock in EDGE_LOCKS if holders[lock] is not None}  # not everybody has a cluster
        return leaders_check({name: holders[lock] for name, lock in locks.items()} | edge)

    async def _schema(self, connection: AsyncConnection) -> AsyncIterator[Check]:
        try:
            schema = await check_connection(connection)
        except DatabaseError as error:
            yield failed("schema", str(error))
            return
        yield schema_check(schema)
        yield await _reader(connection)
        for projection in self._projections:
            async for check in self._projection(connection, projection):
                yield check
        if lost := await lost_views(connection):
            yield warning("own views", lost_views_text(lost))
        yield await _gaps(connection)
        yield disputes_check(await disputed_cards(connection))

    async def _projection(self, connection: AsyncConnection, projection: Projection) -> AsyncIterator[Check]:
        live = await ProjectionStore(connection, projection, LIVE).checkpoint()
        kept = await ProjectionStore(connection, projection, PREV).checkpoint()
        yield await self._rows(projection, live, kept)
        if await _leftover(connection, projection):
            yield warning(
                f"rebuild of {projection.name}",
                f"Tables of an interrupted rebuild are left. `gpuledger replay {projection.name}` clears them.",
            )
        if projection.decides:
            yield outbox_check(projection.name, await _one(connection, _OUTBOX, [projection.name]))

    async def _rows(self, projection: Projection, live: Checkpoint | None, kept: Checkpoint | None) -> Check:
        """Whether rows and log belong together; the log has to hold what was folded before it was asked."""
        ledger, head, generations = self._log.ledger, None, None
        try:
            if live is not None and self._log.is_absent and not is_origin(live.position):
                raise LogLostError(f"NATS has no ledger, and the rows were folded from one up to {live.at}")
            if live is not None and ledger is not None:
                generations = ledger.generations
                head = generations.position(await ledger.head())
                await confirm_log(projection, ledger, live)
        except LogChangedError as error:
            return failed(_check_of(projection), str(error))
        except (LedgerError, GenerationMismatchError):
            pass
        return projection_check(projection, live, kept, head, generations)


def schema_check(schema: Schema) -> Check:
    """Which revision a schema has that this build works with."""
    if schema.is_newer:
        return ok("schema", f"Revision {schema.revision}, newer than this build's {HEAD_REVISION}, and works with it")
    return ok("schema", f"Revision {HEAD_REVISION}, as this build needs it")


def projection_check(
    projection: Projection,
    live: Checkpoint | None,
    kept: Checkpoint | None,
    head: Position | None,
    generations: Generations | None = None,
) -> Check:
    """Whether a projection's rows are of this build and of this log, which may have several generations."""
    name = _check_of(projection)
    if live is None:
        return warning(name, "It has no rows yet. `gpuledger up`, or whichever command needs them, makes them.")
    if head is not None and live.at.is_after(head):
        return failed(name, str(LogRestoredError(f"it ends at {head}, and the rows were folded up to {live.at}")))
    if not projection.takes_over(live.version):
        found = f"Its rows are of version {live.version}, this build writes {projection.version}."
        if live.version > projection.version:
            return warning(name, f"{found} `gpuledger up` of this build leaves them to the newer one that wrote them.")
        return warning(
            name, f"{found} `gpuledger up` builds them anew while they serve; see /healthz for how far it is."
        )
    if head is not None and not (generations or generations_of(head.generation)).has(live.at):
        found = f"Its rows follow {live.at.part}, the log is at {head.part}."
        return failed(name, f"{found} Rebuild them with `gpuledger replay {projection.name}`.")
    behind = "" if head is None else f", {lag(live.position, head.sequence):,} events behind"
    before = "" if kept is None else f", rows of version {kept.version} kept from before the last rebuild"
    return ok(name, f"Version {live.version} at {live.at}{behind}{before}")


def _check_of(projection: Projection) -> str:
    return f"projection {projection.name}"


def leaders_check(leaders: Mapping[str, LockHolder | None]) -> Check:
    """Which processes lead, and since when."""
    led: dict[tuple[str, datetime | None], list[str]] = {}
    for name, holder in leaders.items():
        if holder is not None:
            led.setdefault((holder.process, holder.since), []).append(name)
    if not led:
        return ok("leaders", "No process leads now; `gpuledger up` does")
    found = [
        f"{process} leads {', '.join(names)}{'' if since is None else f' since {since:%Y-%m-%d %H:%M:%S}Z'}"
        for (process, since), names in led.items()
    ]
    idle = [name for name, holder in leaders.items() if holder is None]
    if idle:
        return warning("leaders", f"{'; '.join(found)}. Nobody leads {', '.join(idle)}: see /healthz for the reason.")
    return ok("leaders", "; ".join(found))


def outbox_check(projection: str, waiting: int) -> Check:
    """Whether decisions wait to be published."""
    if waiting:
        return warning(f"outbox of {projection}", f"{waiting:,} decisions wait. `gpuledger up` publishes them.")
    return ok(f"outbox of {projection}", "Nothing waits to be published")


def disputes_check(cards: Sequence[DisputedCard]) -> Check:
    """Whether the agents of several nodes report a card."""
    if not cards:
        return ok("cards", "No card is reported by the agents of two nodes")
    shown = [str(card) for card in cards[:DISPUTED_SHOWN_MAX]] + ["..."] * (len(cards) > DISPUTED_SHOWN_MAX)
    found = f"Agents of several nodes report {len(cards):,} of the cards: {'; '.join(shown)}."
    return warning("cards", f'{found} See "A card that two nodes report" in docs/operations.md.')


def skew_check(before: datetime, server_time: datetime, after: datetime) -> Check:
    """Whether the database's clock agrees with ours; `before` and `after` are our times around the query."""
    skew_s = max((before - server_time).total_seconds(), (server_time - after).total_seconds(), 0.0)
    detail = f"PostgreSQL's clock and this machine's differ by {skew_s:.3f} s"
    if skew_s > SKEW_WARN_S:
        return warning("clock", f"{detail}. Synchronise both (NTP), or lag and gaps are misjudged.")
    return ok("clock", detail)


def _server(version: int, backend: str) -> Check:
    major = version // 10_000
    if major < MAJOR_MIN:
        return failed("postgresql server", f"Version {major} at {backend} is too old. Use {MAJOR_MIN} or newer.")
    return ok("postgresql server", f"Version {major}.{version % 10_000} at {backend}")


async def _reader(connection: AsyncConnection) -> Check:
    if await _one(connection, _ROLE, [READER_ROLE]):
        return ok("reader role", READER_ROLE)
    return warning("reader role", f"There is no {READER_ROLE}. Have an administrator run `gpuledger migrate`.")


async def _leftover(connection: AsyncConnection, projection: Projection) -> bool:
    """Whether tables of a rebuild were left that nobody works on."""
    tables = [spec.name for spec in projection.specs]
    cursor = await connection.execute(_LEFT.encode(), [schema_of(NEXT), tables])
    if await cursor.fetchone() is None:
        return False
    name = f"rebuild:{projection.name}"
    return await try_lock(connection, name) and await unlock(connection, name)


async def _gaps(connection: AsyncConnection) -> Check:
    found = await _one(connection, _GAPS)
    if found:
        return warning("gaps", f"{found:,} ranges of events are missing. See `gpuledger log gaps`.")
    return ok("gaps", "No source's events are missing")


async def _one(connection: AsyncConnection, query: str, values: Sequence[object] = ()) -> Any:  # noqa: ANN401 - any column
    row = await (await connection.execute(query.encode(), values)).fetchone()
    assert row is not None, "these queries always give a row"
    return row[0]


MAJORITY_MIN = 3
ALWAYS = "always"


class LedgerChecks:
    """Checks a NATS server."""

    def __init__(self, nats_url: str, data_dir: Path | None, identity: NatsIdentity = ANONYMOUS) -> None:
        self._is_usable = self._is_absent = False
        self._url = nats_url
        self._identity = identity
        self._data_dir = data_dir

    async def run(self) -> AsyncIterator[Check]:
        """The checks, as they are made."""
        try:
            async with connected(self._url, name="gpuledger doctor", identity=self._identity) as connection:
                refuse_old_server(connection)
                version = connection.client.connected_server_version
                yield ok("nats", f"Version {version.major}.{version.minor}.{version.patch} at {connection.address}")
                async for check in self._stream(connection):
                    yield check
        except LedgerError as error:
            yield failed("nats", str(error))

    @asynccontextmanager
    async def found(self) -> AsyncIterator[FoundLog]:
        """The log as the checks found it, for those of the database."""
        async with AsyncExitStack() as stack:
            ledger = None
            if self._is_usable:
                opening = connect_ledger(
                    self._url, name="gpuledger doctor", identity=self._identity, archives=ArchivedGenerations()
                )
                with suppress(LedgerError):
                    ledger = await stack.enter_async_context(opening)
            yield FoundLog(ledger, self._is_absent)

    async def _stream(self, connection: Connection) -> AsyncIterator[Check]:
        generation, info = await _newest(connection)
        if info is None:
            self._is_absent = True
            yield warning("stream", "There is no ledger. `gpuledger up` makes the first one of an empty database.")
            return
        try:
            check_current(connection, generation, info)
            found = await log_size(connection, generation, info)
            self._is_usable, head = True, Position(generation, found.head)
            size = f"{found.events:,} events, {found.size_bytes / 1024**2:,.1f} MiB"
            name = stream_name(generation) + (f" in {found.partitions} partitions" if found.partitions > 1 else "")
            yield ok("stream", f"{name}: {size}, last position {head}")
        except LedgerError as error:
            yield failed("stream", str(error))
        yield durability_check(info.config.num_replicas or 1, self._sync_interval())
        yield replicas_check(info, len({server.netloc for server in connection.client.discovered_servers}))

    def _sync_interval(self) -> str | None:
        """The setting of an embedded server; None for any other server."""
        if self._data_dir is None:
            return None
        with suppress(OSError, ValueError, KeyError):
            configuration = json.loads((self._data_dir / "nats" / "nats.conf").read_text(encoding="utf-8"))
            return str(configuration["jetstream"]["sync_interval"])
        return None


def durability_check(replicas: int, sync_interval: str | None) -> Check:
    """Whether what is acknowledged outlives a power failure: synced to disk, or kept by a majority of servers."""
    if sync_interval == ALWAYS:
        return ok("durability", "Every event is on disk before it is acknowledged (sync_interval: always)")
    if replicas >= MAJORITY_MIN:
        return ok("durability", f"Every event is on a majority of {replicas} servers before it is acknowledged")
    found = "cannot be seen from here" if sync_interval is None else f"is {sync_interval}"
    return warning("durability", f"There is one replica, and sync_interval {found}. Set it to `always` in nats.conf.")


def replicas_check(info: StreamInfo, servers: int) -> Check:
    """Whether the stream has the replicas that its cluster can hold, and each of them everything.

    `servers` is how many the cluster says it has, 0 if it does not say.
    """
    replicas, cluster = info.config.num_replicas or 1, info.cluster
    if cluster is None or not cluster.name:
        return ok("replicas", "One, on a server that belongs to no cluster")
    behind = [_behind(peer) for peer in cluster.replicas or () if not peer.current]
    if behind:
        return warning(
            "replicas", f"{', '.join(behind)}. Bring it back: with a majority of them gone nothing is recorded."
        )
    if replicas < REPLICAS_IN_CLUSTER and not 0 < servers < REPLICAS_IN_CLUSTER:
        count = "it has one" if replicas == 1 else f"it has {replicas}"
        return warning(
            "replicas",
            f"The cluster {cluster.name} can hold {REPLICAS_IN_CLUSTER} of the stream if it has as many servers with "
            f"JetStream, and {count}. Set {NATS_REPLICAS}={REPLICAS_IN_CLUSTER} and run `gpuledger migrate`.",
        )
    return ok("replicas", f"{replicas} in the cluster {cluster.name}, led by {cluster.leader}; all are current")


def _behind(peer: PeerInfo) -> str:
    state = "offline" if peer.offline else f"not current ({peer.lag or 0:,} operations behind)"
    return f"The replica on {peer.name} is {state}"


async def _newest(connection: Connection) -> tuple[int, StreamInfo | None]:
    """The newest generation that is there."""
    streams = await ledger_streams(connection)
    newest = max(streams, default=0)
    return newest, streams.get(newest)
