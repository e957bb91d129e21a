"""An agent says where each epoch ended that it does not continue, also after runs that could say nothing."""

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from gpuledger.agent.outbox.spool import FILE
from gpuledger.agent.outbox.store import DISK_RETRY_S, OutboxStore
from gpuledger.events.envelope import decode
from gpuledger.events.node import ENDED_EPOCHS_MAX, NodeAgentStarted
from gpuledger.ledger.api import Outgoing
from support.outbox import BOOT, SMALL, Disk, Time, fact, recorded, store_on


class Node:
    """A node whose agent is begun and ended, and a log of what it publishes."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.time, self.epochs = Disk(folder), Time(), count(1)
        self.log: list[Outgoing] = []

    def begin(self, boot: str = BOOT) -> OutboxStore:
        store = store_on(self.disk, self.time, epochs=self.epochs, boot=boot)
        store.open()
        return store

    def drain(self, store: OutboxStore) -> None:
        while entries := store.head():
            self.log += [entry.message for entry in entries]
            store.acknowledged(entries)

    def starts(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """The epoch of each start that was published, and the ends of epochs that it says."""
        events = [decode(message.data) for message in self.log]
        found = [(event.epoch, event.data) for event in events if isinstance(event.data, NodeAgentStarted)]
        return [(epoch, [(one.epoch, one.last) for one in data.ended]) for epoch, data in found]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "state")


def test_a_boot_begins_an_epoch_and_says_where_the_one_before_ended(node: Node) -> None:
    for boot in ("b1", "b2", "b2"):
        store = node.begin(boot)
        store.record([fact(1)])
        node.drain(store)
        store.close()
    assert node.starts() == [("e1", []), ("e2", [("e1", 2)]), ("e2", [])]


def test_a_disk_that_takes_nothing_and_then_does_begins_two_epochs(node: Node) -> None:
    store = node.begin()
    node.disk.full = True
    store.record([fact(1)])
    node.disk.full = False
    node.time.go(DISK_RETRY_S)
    store.check()
    node.drain(store)
    assert node.starts() == [("e1", []), ("e2", [("e1", 1)]), ("e3", [("e1", 1), ("e2", 2)])]
    store.close()
    assert {epoch: holes for epoch, holes in recorded(node.log).missing.items() if holes} == {}


def test_what_no_event_said_yet_outlasts_the_run(node: Node) -> None:
    """The disk takes what memory holds only when the run ends; the next one says where both epochs ended."""
    store = node.begin()
    store.record([fact(1)])
    node.disk.full = True
    store.record([fact(2)])
    node.disk.full = False
    store.close()
    store = node.begin()
    node.drain(store)
    store.close()
    assert node.starts() == [("e1", []), ("e2", [("e1", 2)]), ("e3", [("e1", 2), ("e2", 2)])]


def test_a_run_on_a_disk_that_cannot_be_opened_knows_the_epoch_as_soon_as_it_can(node: Node) -> None:
    store = node.begin()
    store.close()
    node.disk.closed = True
    store = node.begin()
    node.disk.closed = False
    node.time.go(DISK_RETRY_S)
    store.check()
    node.drain(store)
    store.close()
    assert node.starts() == [("e1", []), ("e2", []), ("e3", [("e1", 1), ("e2", 1)])]


def test_epochs_that_end_without_an_announcement_are_named_by_the_next(node: Node) -> None:
    """Events were dropped for want of room, which ends an epoch as soon as there is room again."""
    store = store_on(node.disk, node.time, sizes=SMALL, epochs=node.epochs)
    store.open()
    store.record([fact(number) for number in range(SMALL.spool.events + 5)])
    node.drain(store)
    store.record([fact(99)])
    node.drain(store)
    store.close()
    store = node.begin("b2")
    node.drain(store)
    store.close()
    (_, _), (epoch, ended) = node.starts()
    assert [name for name, _ in ended] == [f"e{number}" for number in range(1, int(epoch[1:]))]
    assert len(ended) > 1


def test_a_file_of_an_earlier_build_goes_on(node: Node) -> None:
    store = node.begin("b1")
    node.drain(store)
    store.close()
    with closing(sqlite3.connect(node.disk.folder / FILE)) as file:
        file.execute("DROP TABLE ended")
    store = node.begin("b2")
    node.drain(store)
    store.close()
    assert node.starts() == [("e1", []), ("e2", [("e1", 1)])]


def test_a_node_that_boots_without_end_names_its_latest_epochs(node: Node) -> None:
    """The ledger is away all the time; each epoch has its own announcement in the queue."""
    for boot in range(ENDED_EPOCHS_MAX + 3):
        node.begin(f"b{boot}").close()
    store = node.begin("last")
    node.drain(store)
    store.close()
    assert [len(ended) for _, ended in node.starts()] == [0] + [1] * (ENDED_EPOCHS_MAX + 3)
