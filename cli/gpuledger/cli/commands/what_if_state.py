"""The recorded pools, and beside them those that would be if one were defined otherwise. Nothing here writes.

Of now the rows are read, and what the log has behind them is folded in memory; of a moment before, all of the log is.
"""

from collections.abc import Callable
from typing import NamedTuple

from gpuledger.cli.render import progress
from gpuledger.db.engine import connect
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.projection.asof import fold_until
from gpuledger.projection.fold import Fold
from gpuledger.projection.skips import skipped_positions
from gpuledger.projection.store import Store
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.whatif.agents import Answered, answer
from gpuledger.tools.whatif.replay import HeardPools
from gpuledger.tools.whatif.world import SupposedPools, Supposition

READ_ONLY = "-c default_transaction_read_only=on"

Told = Callable[[int], None]


class Worlds(NamedTuple):
    """What is recorded, what is supposed, and what agents are supposed to have done there."""

    recorded: PoolFacts
    supposed: SupposedPools
    answered: Answered


async def worlds(backend: Backend, supposition: Supposition, since: int | None) -> Worlds:
    """Both worlds at the end of the log; `since` is how far it had come when the pool is supposed to be defined so."""
    head, projection = await backend.ledger.head(), HeardPools()
    with progress("Folding the log", total=head) as advance, seldom_collected():
        begun = head if since is None else min(since, head)
        if begun == head:
            fold = await _current(backend, projection, head, advance.to)
        else:
            fold = await fold_until(projection, backend.ledger, begun, lambda done, _total: advance.to(done))
        recorded = fold.state
        assert isinstance(recorded, PoolFacts), "what pools fold into"
        supposed = SupposedPools(recorded, supposition, begun + 1)
        projection.hear = supposed.tell
        await _fold(backend, fold, head, advance.to)
    return Worlds(recorded, supposed, answer(supposed, recorded, supposition.pool))


async def _current(backend: Backend, projection: HeardPools, head: int, told: Told) -> Fold:
    """From the rows where they are of this build and this log, else from the start of the log."""
    fold = await _stored(backend, projection)
    if fold is None:
        return await fold_until(projection, backend.ledger, head, lambda done, _total: told(done))
    await _fold(backend, fold, head, told)
    return fold


async def _stored(backend: Backend, projection: HeardPools) -> Fold | None:
    skipped = await skipped_positions(backend.ledger)
    async with connect(backend.database_url, application_name="gpuledger what-if", options=READ_ONLY) as connection:
        store = Store(connection, projection)
        async with store.snapshot():
            checkpoint = await store.checkpoint()
            of_this = (projection.version, backend.ledger.generation)
            if checkpoint is None or (checkpoint.version, checkpoint.generation) != of_this:
                return None
            return await store.load(checkpoint, skipped, await store.outbox())


async def _fold(backend: Backend, fold: Fold, until: int, told: Told) -> None:
    """Fold what follows in the log. What is decided on the way stays in memory."""
    async for messages in backend.ledger.history(after=fold.sequence, until=until):
        fold.apply_all(messages)
        told(fold.sequence)
