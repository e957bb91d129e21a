"""Lives that ended leave memory, and come back for an event about their time: rows are those of a fold that kept all.

Tables name what comes late; properties cut any facts into any batches, with restarts that load what is open.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.events.device import DeviceInserted, DeviceRemoved
from gpuledger.events.envelope import Decoded
from gpuledger.ledger.api import Message
from gpuledger.projection.errors import BadEventError
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import DevicesProjection
from properties.test_folds import DictStore
from properties.test_partitions import partitioned
from support.events import GENERATION, RecordedFact, crowded, device_facts, event, folded, log_of, numbered, rows_of

DEVICES = DevicesProjection()
Move = tuple[str, float, DeviceInserted | DeviceRemoved]
"""A device, when something happened to it, and what."""

device_logs = crowded | st.lists(device_facts, max_size=24)


def inserted(device: str, slot: str, at: float, serial: str | None = None) -> tuple[str, float, DeviceInserted]:
    return device, at, DeviceInserted(slot=slot, serial=serial)


def removed(device: str, slot: str, at: float, *, retired: bool = False) -> tuple[str, float, DeviceRemoved]:
    return device, at, DeviceRemoved(slot=slot, retired=retired)


def events_of(facts: Sequence[Move]) -> list[Decoded]:
    return [event(data, device, number=number, at=at) for number, (device, at, data) in enumerate(facts, 1)]


LIVES: list[Move] = [
    inserted("d1", "s1", 1, "A"),
    removed("d1", "s1", 2),
    inserted("d1", "s1", 3),
    removed("d1", "s1", 5),
    inserted("d2", "s2", 1),
    removed("d2", "s2", 4),
    inserted("d2", "s1", 6),
]
"""Two devices with lives that ended in two slots; one of them is in a slot now."""

LATE: dict[str, list[Move]] = {
    "an insertion within a life": [inserted("d1", "s1", 3.5)],
    "a removal that ends a life earlier": [removed("d1", "s1", 4)],
    "an insertion that was missing before a removal": [removed("d1", "s2", 5.5), inserted("d1", "s2", 5.2)],
    "another device in the slot at that time": [inserted("d3", "s1", 3.2), removed("d3", "s1", 3.4)],
    "the device in another slot at that time": [inserted("d1", "s3", 1.5), removed("d1", "s3", 1.7)],
    "a swap between slots": [inserted("d1", "s2", 2.2), removed("d1", "s2", 2.8), inserted("d2", "s1", 2.2)],
    "before everything": [inserted("d1", "s1", 0.5)],
    "at the time of an end": [inserted("d1", "s1", 5), removed("d1", "s1", 5, retired=True)],
    "a contradiction between two events of a batch": [inserted("d4", "s2", 7), inserted("d5", "s2", 8)],
    "two lives in order, and a stray": [removed("d2", "s1", 7), inserted("d1", "s1", 8), removed("d1", "s2", 9)],
    "two devices in a slot between two lives": [inserted("d2", "s1", 4.5), removed("d2", "s1", 5.5)],
}


def after_restart(messages: Sequence[Message]) -> DictStore:
    """A fold that has taken these and begins again, with the rows alone that a start loads."""
    store = DictStore(DEVICES)
    store.take(messages)
    store.write()
    store.restart()
    return store


@pytest.mark.parametrize("at_once", [True, False], ids=["in one batch", "one by one"])
@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_a_late_event_finds_the_lives_that_ended(late: list[Move], at_once: bool) -> None:
    log = log_of(events_of([*LIVES, *late]))
    store = after_restart(log[: len(LIVES)])
    assert [row.device for row in store.fold.state.tables()["installation"].rows.values()] == ["d2"]
    rest = log[len(LIVES) :]
    for batch in [rest] if at_once else [[one] for one in rest]:
        store.take(batch)
        store.write()
    assert store.rows == rows_of(folded(DEVICES, log))


@given(recorded=device_logs, partitions=st.sampled_from([1, 4]), data=st.data())
def test_facts_in_any_order_and_batches_with_restarts_between_them(
    recorded: list[RecordedFact], partitions: int, data: st.DataObject
) -> None:
    log = log_of(data.draw(st.permutations(numbered(recorded))))
    rest = merged = log if partitions == 1 else partitioned(log, partitions, data)
    store = DictStore(DEVICES)
    while rest:
        size = data.draw(st.integers(1, 4))
        store.take(rest[:size])
        store.write()
        if data.draw(st.booleans()):
            store.restart()
        rest = rest[size:]
    assert store.rows == rows_of(folded(DEVICES, merged))
    assert not store.fold.state.tables()["contradiction"].rows
    assert not [row for row in store.fold.state.tables()["installation"].rows.values() if row.valid_to is not None]


@given(lives=st.lists(st.tuples(st.sampled_from(["d1", "d2"]), st.booleans()), max_size=12), data=st.data())
def test_lives_in_the_order_of_time_read_nothing_back(lives: list[tuple[str, bool]], data: st.DataObject) -> None:
    facts: list[Move] = []
    for at, (device, is_retired) in enumerate(lives):
        slot = f"s-{device}"
        facts += [inserted(device, slot, at), removed(device, slot, at + 0.5, retired=is_retired)]
    rest = log_of(events_of(facts))
    store = DictStore(DEVICES)
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        assert not list(store.fold.applied(store.fold.check_all(rest[:size])))
        store.write()
        store.restart()
        rest = rest[size:]


def test_lives_that_the_store_has_lost_stop_the_projection() -> None:
    log = log_of(events_of([*LIVES, inserted("d1", "s1", 3.5)]))
    store = after_restart(log[:-1])
    store.rows["installation"].clear()
    with pytest.raises(BadEventError, match="have left memory, and are not in the store"):
        store.take(log[-1:])


def test_contradictions_leave_memory_and_follow_what_comes_late() -> None:
    crowd: list[Move] = [inserted("d1", "s1", 1), inserted("d2", "s1", 2), removed("d3", "s9", 3)]
    late: list[Move] = [removed("d1", "s1", 4), removed("d2", "s1", 1.5), inserted("d3", "s9", 2.5)]
    log = log_of(events_of([*crowd, *late]))
    store = after_restart(log[: len(crowd)])
    assert {row.kind for row in store.rows["contradiction"].values()} == {"two-devices-in-slot", "removed-not-inserted"}
    for at in range(len(crowd), len(log)):
        assert not store.fold.state.tables()["contradiction"].rows
        store.take(log[at : at + 1])
        store.write()
        assert store.rows == rows_of(folded(DEVICES, log[: at + 1]))
        store.restart()
    assert [row.valid_to for row in store.rows["contradiction"].values() if row.kind == "two-devices-in-slot"] != [None]


def test_a_fold_that_keeps_all_needs_nothing_read_back() -> None:
    fold = Fold(DEVICES, GENERATION)
    assert not list(fold.applied(fold.check_all(log_of(events_of([*LIVES, inserted("d1", "s1", 3.5)])))))
