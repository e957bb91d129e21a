"""Answers `gpuledger what-if quarantine`: replays recorded reports under other rules, and compares. Writes nothing."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.db.engine import connect
from gpuledger.db.readonly import READ_ONLY
from gpuledger.domain.maintenance.drain_modes import is_untouched, mode_of
from gpuledger.domain.quarantine.state import Quarantine
from gpuledger.events.maintenance import PODS_LISTED_MAX, Drain
from gpuledger.events.position import Offset, events_up_to
from gpuledger.events.quarantine import QuarantineRulesApplied
from gpuledger.projection.fold_snapshots.past import past_fold
from gpuledger.readmodels.projections import AllocationsProjection
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.tools.queries.backend import Backend, bring_current
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.moments import sequence_of
from gpuledger.tools.whatif.card_holders import HeldUnit, Moment, PodNames, holders_at
from gpuledger.tools.whatif.quarantine_replay import (
    Compared,
    HypotheticalQuarantine,
    RecordedQuarantine,
    SetAsideNodes,
    compared,
)

UNCLEAR: Final = "stays: the ledger does not say whether it held the card"

PODS_ASKED_MAX: Final = 10_000
"""For how many nodes set aside the pods are counted, the first ones."""

_UNITS: Final = """
    SELECT DISTINCT asked.place, history.namespace, history.pod, history.allocation, history.device,
        history.claim, history.driver, history.pool, history.valid_from
    FROM unnest(%(places)s::int[], %(nodes)s::text[], %(times)s::timestamptz[]) AS asked (place, node, at)
    JOIN gpuledger_live.container_allocation_history AS history
        ON history.node = asked.node AND history.valid_from <= asked.at
        AND (history.valid_to IS NULL OR history.valid_to > asked.at)
"""


class QuarantineAnswer(NamedTuple):
    """What would have been: a row of each node that would have been set aside or was, and notes about the rest."""

    rows: list[RowDict]
    notes: list[str]


async def what_if_quarantine(
    backend: Backend, document: QuarantineRulesApplied, since: datetime | tuple[int | None, Offset]
) -> QuarantineAnswer:
    """The nodes that rules would have set aside since a moment, beside those that were, with the pods on each then."""
    begun, projection = await sequence_of(backend, since), RecordedQuarantine()
    head = await backend.ledger.head()
    with backend.reporter.progress("Folding the log", total=events_up_to(head)) as advance, seldom_collected():
        fold = await past_fold(
            projection, backend.ledger, backend.snapshots, begun, on_progress=lambda done, _total: advance.to(done)
        )
        recorded = fold.state
        assert isinstance(recorded, Quarantine), "what the service folds into"
        hypothetical = HypotheticalQuarantine(recorded, document)
        was = SetAsideNodes(row for row in recorded.request.rows.values() if row.ended_at is None)
        projection.pass_on, projection.pass_on_recorded = hypothetical.replay, was.note_recorded
        async for messages in backend.ledger.history(after=fold.sequence, until=head):
            fold.apply_all(messages)
            fold.take_decided()
            fold.waiting.take_returned()
            advance.to(events_up_to(fold.sequence))
    found = list(compared(hypothetical.set_aside.rows, was.rows))
    units = await _units(backend, found)
    moments = {
        at: Moment(one.node, one.would.since, one.would.drain.devices, units.get(at, []))
        for at, one in enumerate(found)
        if one.would is not None and one.would.drain is not None and one.would.drain.devices
    }
    holders = await holders_at(backend, moments)
    rows = [_row(one, units.get(at, []), holders.get(at, {})) for at, one in enumerate(found)]
    return QuarantineAnswer(rows, _notes(document, hypothetical))


def _row(one: Compared, units: list[HeldUnit], holders: dict[PodNames, bool]) -> RowDict:
    would = one.would
    return {
        "node": one.node,
        "would": one.would and one.would.ruleset,
        "would_since": one.would and one.would.since,
        "would_until": one.would and one.would.until,
        "pods": len({one.names for one in units}) if would else None,
        "drained": None if would is None or would.drain is None else _drained(would.drain, units, holders),
        "was": one.was and one.was.ruleset,
        "was_since": one.was and one.was.since,
        "was_until": one.was and one.was.until,
    }


def _notes(document: QuarantineRulesApplied, hypothetical: HypotheticalQuarantine) -> list[str]:
    notes = [f"{hypothetical.reports:,} reports were judged by version {document.digest[:12]} of the rules."]
    notes += [
        f"The circuit breaker would have opened at {one.at.isoformat()}: {one.data.node} would have been "
        f"{one.data.quarantined} of {one.data.nodes} nodes. Unless somebody had reset it, nothing followed."
        for one in hypothetical.openings
    ]
    notes += [
        f"{name!r} could not be evaluated over {count.failed:,} reports: {count.failure}."
        for name, count in sorted(hypothetical.counts.items())
        if count.failed
    ]
    return notes


def _drained(drain: Drain, units: list[HeldUnit], holders: dict[PodNames, bool]) -> list[str]:
    """The pods that a drain would have concerned, each with its mode; those of system namespaces stay.

    Where the ledger does not say whether a pod held a card that is drained, it would have stayed, and is shown.
    """
    pods = holders if drain.devices else dict.fromkeys((one.names for one in units), True)
    hit = sorted(names for names in pods if not is_untouched(names[0]))
    shown = [
        f"{namespace}/{pod} ({mode_of(drain, namespace) if pods[namespace, pod] else UNCLEAR})"
        for namespace, pod in hit[:PODS_LISTED_MAX]
    ]
    return [*shown, *([f"{len(hit) - PODS_LISTED_MAX} more"] if len(hit) > PODS_LISTED_MAX else [])]


async def _units(backend: Backend, found: Sequence[Compared]) -> dict[int, list[HeldUnit]]:
    """By place, the units that pods had of the node when it would have been set aside."""
    asked = [(at, one.would) for at, one in enumerate(found) if one.would is not None][:PODS_ASKED_MAX]
    if not asked:
        return {}
    await bring_current(backend, [AllocationsProjection()])
    arguments: dict[str, list[Any]] = {
        "places": [at for at, _ in asked],
        "nodes": [one.node for _, one in asked],
        "times": [one.since for _, one in asked],
    }
    async with connect(backend.database_url, application_name="gpuledger what-if", settings=READ_ONLY) as connection:
        cursor = await connection.execute(_UNITS.encode(), arguments)
        units: dict[int, list[HeldUnit]] = {}
        for place, *of_unit in await cursor.fetchall():
            units.setdefault(int(place), []).append(HeldUnit(*of_unit))
        return units
