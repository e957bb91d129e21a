"""Whoever loads a snapshot and folds on has the state of a fold from the start of the log."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.tombstones import LATE_MAX
from gpuledger.edge.admission.cache import AdmissionCache, CacheProjection
from gpuledger.events.device import DeviceWithdrawn
from gpuledger.events.envelope import Decoded
from gpuledger.events.namespace import NamespaceGone, NamespaceObserved
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.pool import PoolGone
from gpuledger.ledger.api import Message
from gpuledger.projection.fold import Fold
from gpuledger.projection.snapshot import layout_of
from support.admission import SOURCES, RecordedFact, assigned, device, namespace, pool, settings
from support.events import GENERATION, START, event, message, rows_of
from support.snapshots import reloaded

DAY_NS = 86_400 * 1_000_000_000
SUBJECTS = st.sampled_from(["a", "b"])


class Recorded(NamedTuple):
    """A fact, how many days before its recording it happened, and how many days after the one before that is."""

    fact: RecordedFact
    late_days: int
    after_days: int


def _namespaces(name: str) -> st.SearchStrategy[RecordedFact]:
    facts: list[RecordedFact] = [
        (name, NamespaceObserved(uid="u", gpu_enabled=True)),
        (name, NamespaceObserved(uid="u", gpu_enabled=False)),
        (name, NamespaceGone(uid="u")),
        (name, NodeLabelled(uid="u", labels={"zone": name})),
        (name, NodeUnlabelled()),
    ]
    return st.sampled_from(facts)


def _others(name: str) -> st.SearchStrategy[RecordedFact]:
    subject = f"team/{name}"
    facts: list[RecordedFact] = [
        *device(name), assigned(name, subject), (name, DeviceWithdrawn(reason="Retired")),
        *pool(subject), (subject, PoolGone(uid="u")), settings(enabled=True), namespace(),
    ]  # fmt: skip
    return st.sampled_from(facts)


FACTS = st.one_of(SUBJECTS.flatmap(_namespaces), SUBJECTS.flatmap(_others))
RECORDS = st.lists(st.builds(Recorded, FACTS, st.integers(0, 10), st.integers(0, 5)), max_size=25)


def log_of(records: Sequence[Recorded]) -> list[Message]:
    """The log of these facts, recorded some days apart."""
    numbers: dict[str, int] = {}
    messages, day = [], 20
    for sequence, (fact, late_days, after_days) in enumerate(records, 1):
        day += after_days
        messages.append(_recorded(numbers, fact, sequence, day=day, happened=day - late_days))
    return messages


def _recorded(numbers: dict[str, int], fact: RecordedFact, sequence: int, *, day: int, happened: int) -> Message:
    subject, data = fact
    source = SOURCES[data.PUBLISH_RULE.publishers[0]]
    numbers[source] = numbers.get(source, 0) + 1
    one: Decoded = event(data, subject, number=numbers[source], at=24 * happened, source=source)
    recorded_ns = int(START.timestamp()) * 1_000_000_000 + day * DAY_NS
    return message(one, sequence)._replace(recorded_ns=recorded_ns)


@given(RECORDS, st.data())
def test_a_snapshot_at_any_position_leads_to_the_same_state(records: list[Recorded], data: st.DataObject) -> None:
    messages = log_of(records)
    whole = Fold(CacheProjection(), GENERATION)
    whole.apply_all(messages)
    at = data.draw(st.integers(0, len(messages)), label="position")
    begun = Fold(CacheProjection(), GENERATION)
    begun.apply_all(messages[:at])
    resumed = reloaded(begun, messages[at - 1]) if at else begun
    resumed.apply_all(messages[at:])
    assert rows_of(resumed) == rows_of(whole)
    assert resumed.sequence == whole.sequence
    assert resumed.seen.numbers == whole.seen.numbers


@given(st.permutations(range(6)), st.lists(SUBJECTS.flatmap(_namespaces), min_size=6, max_size=6))
def test_the_order_of_recording_does_not_matter_within_the_bound(order: list[int], facts: list[RecordedFact]) -> None:
    """Each fact is recorded within seven days of its time, in whatever order."""
    in_time = log_of([Recorded(fact, 0, 1) for fact in facts])
    numbers: dict[str, int] = {}
    mixed = [
        _recorded(numbers, facts[index], sequence, day=27, happened=21 + index)
        for sequence, index in enumerate(order, 1)
    ]
    assert _answers(in_time) == _answers(mixed)


def _answers(messages: Sequence[Message]) -> list[object]:
    fold = Fold(CacheProjection(), GENERATION)
    fold.apply_all(messages)
    state = fold.state
    assert isinstance(state, AdmissionCache)
    return [(state.allows_gpus(name), state.labels_of(name)) for name in ("a", "b")]


def test_what_is_gone_for_long_leaves_nothing_behind() -> None:
    gone: list[RecordedFact] = [(f"n{number}", NamespaceGone(uid="u")) for number in range(50)]
    later = (LATE_MAX + timedelta(days=1)).days
    fold = Fold(CacheProjection(), GENERATION)
    fold.apply_all(log_of([*(Recorded(fact, 0, 0) for fact in gone), Recorded(namespace("kept"), 0, later)]))
    assert list(fold.state.tables()["namespace_gate"].rows) == ["kept"]


def test_builds_with_other_rows_have_other_layouts() -> None:
    projection = CacheProjection()
    layout = layout_of(projection, projection.new_state())
    assert layout.digest == layout_of(projection, projection.new_state()).digest
    assert layout._replace(version=layout.version + 1).digest != layout.digest
    assert layout._replace(specs=layout.specs[1:]).digest != layout.digest
