"""The ledger and database that a tool reads, and the wait until the tables hold everything that the log holds.

Whoever opens the servers builds a `Backend`; this module never starts or stops one. A person who waits learns of
progress through the `Reporter`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from gpuledger.db.engine import NO_SETTINGS, AsyncConnection, connect
from gpuledger.db.readonly import STATEMENT_TIMEOUT_S, one_moment, reader_session
from gpuledger.domain.table import Table
from gpuledger.events.position import Generations, Offset, events_up_to, lag
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.checkpoint import LIVE, Checkpoint, live_checkpoints, schema_of
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.past import past_fold
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.replay import fold_until
from gpuledger.projection.rows import RowStore
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import read_models
from gpuledger.runtime.objects import open_objects
from gpuledger.runtime.settings import ANONYMOUS, NatsIdentity
from gpuledger.tools.errors import RequestError
from gpuledger.tools.queries.replica import Replica, as_of, reached
from gpuledger.tools.reporting import SILENT, Reporter

CURRENT_WAIT_S = 15.0
"""How long a tool waits for a running projector to reach the head of the log."""

POLL_S = 0.02
"""How often the running projector's position is read."""

PROJECT_AGAIN_S = 1.0
"""How often it is tried again to project here, because the running projector may have ended."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backend:
    """An open ledger and database. `data_dir` is the data directory of embedded servers, None for real ones.

    With `nats_identity` a tool opens the ledger once more, such as an archived generation. `objects_url` is where
    snapshots are; None: nowhere. A command that only asks has the `replica` that answers it, where there is one. What
    is read goes over the `session`, where there is one (`one_session`).
    """

    ledger: JetStreamLedger
    database_url: str
    nats_url: str
    data_dir: Path | None
    reporter: Reporter = SILENT
    nats_identity: NatsIdentity = ANONYMOUS
    objects_url: str | None = None
    replica: Replica | None = None
    session: AsyncConnection | None = None

    @property
    def snapshots(self) -> FoldSnapshots | None:
        """The snapshots of folds of this ledger, where there is an object store."""
        if self.objects_url is None:
            return None
        return FoldSnapshots(open_objects(self.objects_url), self.ledger, self.reporter.message)


class HasTables(Protocol):
    """A state that is kept in tables."""

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table, by name."""
        ...


def all_projections() -> list[Projection]:
    """A new instance of every projection of the product."""
    from gpuledger.tools.queries.deciders import deciders  # noqa: PLC0415 - most questions are for the read models alone

    return [*read_models(), *deciders()]


def named_projections(names: Sequence[str]) -> list[Projection]:
    """The projections with these names; all of them if there are no names.

    Raises:
        RequestError: there is no projection of that name.
    """
    by_name = {projection.name: projection for projection in read_models()}
    if not names or not by_name.keys() >= set(names):
        by_name = {projection.name: projection for projection in all_projections()}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise RequestError(f"There is no projection {unknown[0]!r}", f"Choose from {', '.join(by_name)}")
    return [by_name[name] for name in names] or list(by_name.values())


async def bring_current(backend: Backend, projections: Sequence[Projection] | None = None) -> None:
    """Wait until the tables hold everything that is in the log now; where nobody projects, do it here.

    A projector that does not get there in time is reported; the rows are then as of its checkpoint. A replica is waited
    for where its rows are read, and nobody projects for it here.
    """
    head = await backend.ledger.head()
    if backend.replica is not None:
        backend.replica.require(projections or all_projections(), head)
        return
    opening = connect(backend.database_url, application_name="gpuledger position")
    async with opening if backend.session is None else nullcontext(backend.session) as connection:
        for projection in projections or all_projections():
            position = _Position(connection, projection, backend.ledger.generations, head)
            if await position.lag() == 0:
                continue
            if events := await _project(backend, position):
                checkpoint = await position.checkpoint()
                backend.reporter.message(await as_of(backend.ledger, [projection.name], events, checkpoint))


@asynccontextmanager
async def one_session(backend: Backend, application_name: str) -> AsyncIterator[Backend]:
    """The backend for several questions, one after the other, which are all asked over one connection meanwhile.

    Each is still about a moment of its own. Raises as `read` does.
    """
    url = backend.database_url if backend.replica is None else backend.replica.url
    async with reader_session(url, application_name=application_name) as connection:
        yield replace(backend, session=connection)


async def read(
    backend: Backend,
    work: Callable[[AsyncConnection], Awaitable[T]],
    *,
    application_name: str,
    statement_timeout_s: int = STATEMENT_TIMEOUT_S,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> T:
    """What `work` makes of one moment of the rows, over a connection that only reads: to a replica, where one answers.

    `settings` are further ones of the session. There it may run several times, so that it keeps nothing of a time that
    did not end.

    Raises:
        DatabaseUnavailableError: no connection can be made, or it is lost.
        RecoveryConflictError: the replica canceled it each time.
    """
    opening = partial(
        reader_session, application_name=application_name, statement_timeout_s=statement_timeout_s, settings=settings
    )
    is_usual = (statement_timeout_s, settings) == (STATEMENT_TIMEOUT_S, NO_SETTINGS)

    def session(url: str) -> AbstractAsyncContextManager[AsyncConnection]:
        shared = backend.session
        return opening(url) if shared is None or shared.closed or not is_usual else nullcontext(shared)

    if backend.replica is not None:
        return await backend.replica.read(work, session)
    async with session(backend.database_url) as connection, one_moment(connection):
        return await work(connection)


async def load_state(backend: Backend, state: HasTables, *, without: Collection[str] = ()) -> None:
    """Fill a new state with the current rows, except for the tables named in `without`; it must never be written."""
    tables = [table for name, table in state.tables().items() if name not in without]

    async def rows_of_all(connection: AsyncConnection) -> list[list[list[Any]]]:
        stores = [RowStore(table.spec, schema_of(LIVE)) for table in tables]
        return [[list(rows) async for rows in store.live(connection)] for store in stores]

    for table in state.tables().values():
        table.never_written()
    found = await read(backend, rows_of_all, application_name="gpuledger state")
    for table, batches in zip(tables, found, strict=True):
        for rows in batches:
            table.load(rows)


async def current(backend: Backend, projection: Projection, *, without: Collection[str] = ()) -> Any:  # noqa: ANN401
    """A projection's state of now, which must never be written; see `bring_current` and `load_state`."""
    await bring_current(backend, [projection])
    state = projection.new_state()
    await load_state(backend, state, without=without)
    return state


async def folded(backend: Backend, projection: Projection, until: Offset | None = None) -> Fold:
    """A fold of the log in memory, up to a sequence or its head."""
    target = await backend.ledger.head() if until is None else until
    with backend.reporter.progress("Folding the log", total=events_up_to(target)) as advance:
        return await fold_until(projection, backend.ledger, target, lambda done, _total: advance.to(done))


async def folded_past(
    backend: Backend, projection: Projection, until: Offset | None = None, *, whole: Collection[str] = ()
) -> Fold:
    """A fold in memory up to a sequence or the log's head, from the nearest snapshot on; see `past_fold`."""
    target = await backend.ledger.head() if until is None else until
    with backend.reporter.progress("Folding the log", total=events_up_to(target)) as advance:
        return await past_fold(
            projection,
            backend.ledger,
            backend.snapshots,
            target,
            whole=whole,
            on_progress=lambda done, _total: advance.to(done),
        )


async def _project(backend: Backend, position: "_Position") -> int:
    """Project, or wait for whoever does; they may end before `head`, so it is tried again. Returns the lag."""
    now = asyncio.get_running_loop().time
    deadline_s = now() + CURRENT_WAIT_S
    projection, head = position.projection, position.head
    with backend.reporter.progress(f"Projecting {projection.name}", total=events_up_to(head)) as advance:
        runner = Runner(
            projection,
            backend.ledger,
            backend.database_url,
            on_flush=lambda checkpoint: advance.to(events_up_to(checkpoint.position)),
        )
        while not await runner.catch_up(head):
            again_s = min(now() + PROJECT_AGAIN_S, deadline_s)
            while (lag := await position.lag()) != 0 and now() < again_s:  # noqa: ASYNC110 - nobody notifies
                await asyncio.sleep(POLL_S)
            if lag == 0 or now() >= deadline_s:
                return events_up_to(head) if lag is None else lag
    return 0


class _Position(NamedTuple):
    """Where a projection's rows stand, compared with a head of the log; read over one connection."""

    connection: AsyncConnection
    projection: Projection
    generations: Generations
    head: Offset

    async def lag(self) -> int | None:
        """How many events up to `head` have no rows yet; None where the projection has never started."""
        checkpoint = await self.checkpoint()
        return None if checkpoint is None else lag(reached(checkpoint, self.generations), self.head)

    async def checkpoint(self) -> Checkpoint | None:
        """Up to where the rows are true."""
        return (await live_checkpoints(self.connection, [self.projection])).get(self.projection.name)
