"""Journals of watchers begin at their last snapshot, with the numbers that are left and without what is long gone."""

from datetime import timedelta

import pytest

from gpuledger.domain.tombstones import LATE_MAX
from gpuledger.edge.watchers.decide import AnyKind, NewFact
from gpuledger.edge.watchers.journal import Journal, Listener
from gpuledger.edge.watchers.journal_rows import journal_layout
from gpuledger.edge.watchers.resources import moduleconfig, nodes
from gpuledger.events.envelope import decode
from gpuledger.events.node import NodeGone, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.snapshots import Snapshots, SnapshotSettings
from gpuledger.runtime.clock import system_clock
from support.counted_reads import CountedReads
from support.events import event, outgoing
from support.ledgers import everything

NODES = nodes.kind("gpu.deckhouse.io/managed")
SETTINGS = SnapshotSettings(events_min=50)


class KeptJournal:
    """A journal, and the snapshots that it offers."""

    def __init__(self, ledger: JetStreamLedger, url: str, kind: AnyKind = NODES, listener: Listener | None = None):
        self.snapshots = Snapshots(journal_layout(kind.source), ledger, url, SETTINGS)
        self.journal = Journal(ledger, kind, lambda: "epoch", listener, snapshots=self.snapshots)

    async def write(self) -> None:
        """Write what is offered, at once."""
        assert self.snapshots.offered is not None
        assert await self.snapshots.write(self.snapshots.offered)


@pytest.fixture
def counted(ledger: JetStreamLedger) -> CountedReads:
    return CountedReads(ledger)


def observed(first: int, last: int) -> list[NewFact]:
    now = system_clock()
    return [NewFact(f"w{number}", now, NodeObserved(uid="u")) for number in range(first, last + 1)]


async def by_another(ledger: JetStreamLedger, number: int) -> None:
    """An event of the source that leaves numbers out."""
    one = event(NodeObserved(uid="u"), f"w{number}", number=number, source=NODES.source, epoch="epoch")
    await ledger.publish(outgoing(one))


async def test_a_restart_reads_what_came_since_and_uses_the_numbers_that_are_left(
    counted: CountedReads, url: str
) -> None:
    first = KeptJournal(counted, url)
    await first.journal.catch_up()
    await first.journal.record(observed(1, 60))
    await by_another(counted, 64)
    await first.journal.catch_up()
    await first.journal.record(observed(70, 70))
    await by_another(counted, 130)
    await first.journal.catch_up()
    first.journal.offer()
    await first.write()
    counted.restart()
    second = KeptJournal(counted, url)
    await second.journal.catch_up()
    assert counted.read_messages == 0
    assert second.journal.recorded == first.journal.recorded
    assert second.journal.anchor == first.journal.anchor
    await second.journal.record(observed(200, 202))
    assert counted.read_messages == 3
    numbers = [decode(one.data).number for one in await everything(counted)]
    assert numbers[-3:] == [62, 63, 65]


async def test_a_listener_hears_what_was_recorded_before_the_snapshot(counted: CountedReads, url: str) -> None:
    kind = moduleconfig.KIND
    heard: list[Payload] = []
    first = KeptJournal(counted, url, kind, heard.append)
    await first.journal.catch_up()
    changed = SettingsChanged(managed_label_key="example.com/managed")
    await first.journal.record([NewFact(kind.always[0], system_clock(), changed)])
    first.journal.offer()
    await first.write()
    counted.restart()
    second = KeptJournal(counted, url, kind, heard.append)
    await second.journal.catch_up()
    assert heard == [changed, changed]
    assert counted.read_messages == 0


async def test_what_is_gone_for_long_is_forgotten_and_recorded_as_anew(counted: CountedReads, url: str) -> None:
    long_ago = system_clock() - LATE_MAX - timedelta(days=1)
    journal = KeptJournal(counted, url).journal
    await journal.catch_up()
    await journal.record([NewFact("old", long_ago, NodeObserved(uid="u"))])
    await journal.record([NewFact("old", long_ago + timedelta(hours=1), NodeGone(uid="u"))])
    await journal.record([NewFact("w1", system_clock(), NodeGone(uid="u"))])
    assert list(journal.recorded) == ["w1"]
