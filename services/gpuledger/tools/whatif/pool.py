"""Answers `gpuledger what-if pool`: folds the recorded pools, and beside them the pools under another definition.

For a definition as of now, the rows are read and the rest of the log is folded in memory; for one as of a moment in the
past, the log is folded from the nearest snapshot before it, or from its start. Nothing here writes.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from gpuledger.api.kinds import Resource
from gpuledger.api.labels import ANNOTATION_MAINTENANCE
from gpuledger.db.engine import connect
from gpuledger.db.readonly import READ_ONLY
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.edge.watchers.resources import gpupools
from gpuledger.events.position import Offset, earliest, events_up_to, is_same, next_after
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.past import past_fold
from gpuledger.projection.replay import skipped_positions
from gpuledger.projection.shared_numbers import SharedNumbers
from gpuledger.projection.store import ProjectionStore
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.tools.errors import RequestError
from gpuledger.tools.explain.pools import uses_of
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.moments import sequence_of
from gpuledger.tools.whatif.agents import AssumedReports, report
from gpuledger.tools.whatif.differences import pool_differences
from gpuledger.tools.whatif.document import Document, differences_document, notes
from gpuledger.tools.whatif.hypothetical import Hypothesis, HypotheticalPools, RecordedPools
from gpuledger.tools.whatif.refusals import admission_notes

NOW = "now"

OnPosition = Callable[[int], None]


class Manifest(NamedTuple):
    """A pool's manifest with the defaults of its schema; `file` is the name by which the user gave it."""

    file: str
    resource: Resource
    object: dict[str, Any]

    def hypothesis(self) -> Hypothesis:
        """The fact that the watchers would record of it.

        Raises:
            RequestError: they would not understand it.
        """
        found = gpupools.read(self.resource, self.object)
        if found.subject is None or found.problems:
            raise RequestError("; ".join(found.problems))
        has_maintenance = ANNOTATION_MAINTENANCE in (self.object["metadata"].get("annotations") or {})
        return Hypothesis(found.subject, gpupools.KIND.combine([found.content]), has_maintenance)


class ComparedPools(NamedTuple):
    """The recorded and the hypothetical pools, and what agents are assumed to have reported of these."""

    recorded: PoolFacts
    hypothetical: HypotheticalPools
    reports: AssumedReports


async def what_if_pool(
    backend: Backend, manifest: Manifest, since: datetime | tuple[int | None, Offset] | None
) -> Document:
    """The differences, if the pool were defined as in the manifest since a moment (None: from now on)."""
    hypothesis = manifest.hypothesis()
    sequence = None if since is None else await sequence_of(backend, since)
    found = await _compare(backend, hypothesis, sequence)
    recorded, pool = found.recorded, hypothesis.pool
    differing = {one.pool for one in pool_differences(recorded, found.hypothetical)}
    pods = recorded.pod.rows
    used = {one: sum(use.units for use in uses_of(pods, one) if use.node is not None) for one in {*differing, pool}}
    refusals = admission_notes(manifest.resource, manifest.object, pool, hypothesis.definition, recorded)
    return {
        "pool": pool,
        "kind": manifest.resource.kind,
        "file": manifest.file,
        "since": NOW if sequence is None else str(backend.ledger.generations.position(sequence)),
        "notes": [*refusals, *notes(recorded, found.hypothetical, found.reports, pool, used)],
        **differences_document(recorded, found.hypothetical, pool, used),
    }


async def _compare(backend: Backend, hypothesis: Hypothesis, since: Offset | None) -> ComparedPools:
    """Both states at the end of the log; `since` is the sequence after which the definition counts."""
    head, projection = await backend.ledger.head(), RecordedPools()
    with backend.reporter.progress("Folding the log", total=events_up_to(head)) as advance, seldom_collected():
        begun = head if since is None else earliest(since, head)
        if is_same(begun, head):
            fold = await _current(backend, projection, head, advance.to)
        else:
            fold = await _past(backend, projection, begun, advance.to)
        recorded = fold.state
        assert isinstance(recorded, PoolFacts), "what pools fold into"
        hypothetical = HypotheticalPools(recorded, hypothesis, next_after(begun))
        projection.pass_on = hypothetical.replay
        await _fold(backend, fold, head, advance.to)
    return ComparedPools(recorded, hypothetical, report(hypothetical, recorded, hypothesis.pool))


async def _current(backend: Backend, projection: RecordedPools, head: Offset, on_position: OnPosition) -> Fold:
    """A fold from the rows where they are of this build and this log, else from the start of the log."""
    fold = await _stored(backend, projection)
    if fold is None:
        return await _past(backend, projection, head, on_position)
    await _fold(backend, fold, head, on_position)
    return fold


async def _past(backend: Backend, projection: RecordedPools, until: Offset, on_position: OnPosition) -> Fold:
    """A fold from the nearest snapshot, else from the start of the log."""
    return await past_fold(
        projection, backend.ledger, backend.snapshots, until, on_progress=lambda done, _total: on_position(done)
    )


async def _stored(backend: Backend, projection: RecordedPools) -> Fold | None:
    skipped = await skipped_positions(backend.ledger)
    async with connect(backend.database_url, application_name="gpuledger what-if", settings=READ_ONLY) as connection:
        store = ProjectionStore(connection, projection)
        async with store.snapshot():
            checkpoint = await store.checkpoint()
            if checkpoint is None or not projection.takes_over(checkpoint.version):
                return None
            if not backend.ledger.generations.has(checkpoint.at):
                return None
            numbers = await SharedNumbers(backend.ledger, backend.database_url).at(checkpoint.position)
            return await store.load(checkpoint, backend.ledger.generations, numbers, skipped, await store.outbox())


async def _fold(backend: Backend, fold: Fold, until: Offset, on_position: OnPosition) -> None:
    """Fold the rest of the log. What the decider decides on the way stays in memory."""
    async for messages in backend.ledger.history(after=fold.sequence, until=until):
        fold.apply_all(messages)
        fold.take_decided()
        fold.waiting.take_returned()
        on_position(events_up_to(fold.sequence))
