"""The journals of all watchers as folds of the log from its start, to compare their snapshots with."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.watchers.decide import AnyKind
from gpuledger.edge.watchers.journal import Journal
from gpuledger.edge.watchers.journal_rows import journal_layout
from gpuledger.edge.watchers.resources import (
    components,
    moduleconfig,
    nodes,
    preflight_pods,
    sharing_nodes,
    sharing_pods,
)
from gpuledger.edge.watchers.service import INDEPENDENT_KINDS, SettingsInForce
from gpuledger.events.position import Offset, events_up_to
from gpuledger.ledger.api import Ledger
from gpuledger.projection.replay import OnProgress
from gpuledger.projection.snapshot import Row
from gpuledger.runtime.clock import random_id


class ComparedJournal:
    """The journal of a source, which nobody records by."""

    forgotten_by_effects: Final = frozenset[str]()

    def __init__(self, kind: AnyKind, ledger: Ledger, *, listens: bool = False) -> None:
        self.layout = journal_layout(kind.source)
        self._journal = Journal(ledger, kind, random_id, SettingsInForce().listen if listens else None)

    async def rows_at(self, until: Offset, on_progress: OnProgress | None) -> Mapping[str, Sequence[Row]]:
        """The rows behind a position."""
        await self._journal.catch_up(until)
        if on_progress is not None:
            on_progress(events_up_to(until), events_up_to(until))
        return self._journal.rows()


def compared_journals(ledger: Ledger) -> Iterator[ComparedJournal]:
    """One of each source; what depends on settings is which objects are watched, and not what a record means."""
    yield ComparedJournal(moduleconfig.KIND, ledger, listens=True)
    label_key = SettingsInForce().label_key
    shared = (sharing_nodes.kind(SharingNames()), sharing_pods.KIND)
    fixed = (preflight_pods.KIND, *shared, *INDEPENDENT_KINDS, components.kind(""))
    for kind in (nodes.kind(label_key), *fixed):
        yield ComparedJournal(kind, ledger)
