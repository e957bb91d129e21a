"""What a log amounts to does not depend on the form of its subjects, and the index finds what a scan finds."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.domain.event_index import ASSIGNED, INDEXED_EVENT, IndexedEvent, IndexedName
from gpuledger.domain.fact import time_of_ns
from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.device import DeviceAssignmentChanged
from gpuledger.events.envelope import Decoded, decode, parse
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.subjects import parse_subject, shared_subject
from gpuledger.ledger.api import Message
from gpuledger.projection import enforced
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import BadEventError
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import AllocationsProjection, EventIndexProjection
from gpuledger.tools.queries.backend import all_projections
from support.events import AGENT, RecordedFact, event, facts, folded, hour, log_of, numbered, rows_of

NEWEST = RULE_VERSIONS[Rule.SHARED_SUBJECTS]
ENFORCED = event(RuleEnforced(version=NEWEST), Rule.SHARED_SUBJECTS, source="/services/sources")

pod_facts = st.lists(
    st.builds(
        RecordedFact,
        st.just("/watchers/pods"),
        st.sampled_from(["team/a", "team/b"]),
        st.integers(0, 9),
        st.builds(PodObserved, uid=st.just("u"), node=st.none() | st.just("n1")) | st.builds(PodGone, uid=st.just("u")),
    ),
    max_size=8,
)
recorded = st.builds(list.__add__, facts, pod_facts).flatmap(
    lambda those: st.tuples(st.just(numbered(those)), st.lists(st.booleans(), min_size=len(those), max_size=len(those)))
)
"""Events, and which of them are recorded under the shared form of their subject."""


def in_form(events: Sequence[Decoded], shared: Sequence[bool]) -> list[Message]:
    named = log_of([ENFORCED, *events])
    forms = [False, *shared]
    return [
        one._replace(subject=shared_subject(one.subject, NEWEST)) if is_shared else one
        for one, is_shared in zip(named, forms, strict=True)
    ]


@pytest.mark.parametrize("projection", all_projections(), ids=lambda one: one.name)
@given(given_=recorded)
def test_rows_and_decisions_are_the_same_for_both_forms(
    projection: Projection, given_: tuple[list[Decoded], list[bool]]
) -> None:
    events, shared = given_
    named, mixed = (
        folded(projection, in_form(events, [False] * len(events))),
        folded(projection, in_form(events, shared)),
    )
    if projection.name not in ("seals", "index"):  # they keep what stands in subjects
        assert rows_of(mixed) == rows_of(named)
    assert mixed.decided == named.decided
    assert [one.id for one in mixed.decided] == [one.id for one in named.decided]
    assert mixed.events == named.events == len(events) + 1


@given(given_=recorded, repeated=st.booleans())
def test_the_index_has_what_a_scan_finds(given_: tuple[list[Decoded], list[bool]], repeated: bool) -> None:
    log = in_form(*given_)
    if repeated:
        log += [one._replace(sequence=number) for number, one in enumerate(log, len(log) + 1)]
    scanned = [
        (IndexedName(parsed.aggregate, parse(one.data).subject).digest, one.sequence)
        for one in log
        if (parsed := parse_subject(one.subject)).id is None or parsed.aggregate in ("device", "node", "pool")
    ]
    assigned = [(IndexedName(ASSIGNED, pool).digest, one.sequence) for one in log if (pool := assigned_pool(one))]
    rows = folded(EventIndexProjection(), log).state.tables()[INDEXED_EVENT.name].rows
    assert sorted(rows) == sorted(scanned + assigned)


def assigned_pool(message: Message) -> str | None:
    payload = decode(message.data).data
    return payload.pool if isinstance(payload, DeviceAssignmentChanged) else None


@given(given_=recorded)
def test_the_index_has_the_events_about_devices_and_pools_as_they_were_recorded(
    given_: tuple[list[Decoded], list[bool]],
) -> None:
    log = in_form(*given_)
    expected = {
        (IndexedName(aggregate, parse(one.data).subject).digest, one.sequence, time_of_ns(one.recorded_ns), one.data)
        for one in log
        if (aggregate := one.subject.split(".")[3]) in ("device", "pool")
    }
    rows = folded(EventIndexProjection(), log).state.tables()[INDEXED_EVENT.name].rows.values()
    assert {(*row[:3], row.event.encode()) for row in rows if row.event is not None} == expected
    assert all(row.recorded_at is None for row in rows if row.event is None)


def test_what_is_rejected_is_in_the_index_and_what_cannot_be_read_is_not() -> None:
    foreign = log_of([event(PodGone(uid="u"), "team/a", source=AGENT)])[0]
    log = [
        log_of([ENFORCED])[0],
        foreign._replace(sequence=2, subject="ledger.node.n2.pod.~.gone"),
        foreign._replace(sequence=3, subject="ledger.node.n1.pod.~.gone", data=b"{"),
        foreign._replace(sequence=4, subject="ledger.node.n1.device.~.gone"),
        foreign._replace(sequence=5, subject="ledger.node.n1.pod.~.x.gone"),
        foreign._replace(sequence=6, subject="ledger.node.n1.device.GPU-1%2E2.gone", data=b"{"),
        foreign._replace(sequence=7, subject="ledger.node.n1.device.GPU-1.2.gone"),
        foreign._replace(sequence=8, subject="ledger.node.n1.slot.GPU-1%2E2.gone"),
    ]
    rows = folded(EventIndexProjection(), log).state.tables()[INDEXED_EVENT.name].rows
    assert list(rows) == [(IndexedName("pod", "team/a").digest, 2), (IndexedName("device", "GPU-1.2").digest, 6)]


def test_an_assignment_stands_under_its_device_and_under_its_pool() -> None:
    decisions = [
        event(DeviceAssignmentChanged(pool=pool, reason="Assigned"), "g1", number=number, source="/services/pools")
        for number, pool in enumerate(["a", None], 1)
    ]
    rows = folded(EventIndexProjection(), log_of(decisions)).state.tables()[INDEXED_EVENT.name].rows
    device, pool = IndexedName("device", "g1").digest, IndexedName(ASSIGNED, "a").digest
    assert sorted(rows) == sorted([(device, 1), (pool, 1), (device, 2)])


@pytest.mark.parametrize("data", [b"\xff", b"\0", b'{"subject": "\0"}'])
def test_what_is_no_text_for_a_database_stays_in_the_log_alone(data: bytes) -> None:
    one = Message("ledger.node.n1.device.d1.gone", data, 1, 1_000)
    rows = folded(EventIndexProjection(), [one]).state.tables()[INDEXED_EVENT.name].rows
    assert list(rows.values()) == [IndexedEvent(IndexedName("device", "d1").digest, 1, None, None)]


def test_before_the_rule_no_build_takes_a_shared_subject() -> None:
    observed = AllocationObserved(node="n1", namespace="ns", pod="p", container="c")
    early = log_of([event(observed, "n1/ns/p/c", source=AGENT, at=1)])[0]
    early = early._replace(subject=shared_subject(early.subject, NEWEST))
    assert not folded(AllocationsProjection(), [early]).state.tables()["container_allocation_report"].rows
    gone = log_of([event(PodGone(uid="u"), "team/a", source="/watchers/pods")])[0]
    with pytest.raises(BadEventError, match="do not belong under"):
        folded(PoolsProjection(), [gone._replace(subject=shared_subject(gone.subject, NEWEST))])


def test_a_build_that_does_not_know_the_rule_stops_before_it_meets_a_shared_subject(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = {rule: version for rule, version in RULE_VERSIONS.items() if rule is not Rule.SHARED_SUBJECTS}
    gone = event(PodGone(uid="u"), "team/a", source="/watchers/pods")
    log = in_form([gone], [True])
    monkeypatch.setattr(enforced, "RULE_VERSIONS", older)
    fold = Fold(PoolsProjection(), 1)
    with pytest.raises(BadEventError, match=f"does not know version {NEWEST} of the rule 'shared-subjects'"):
        fold.apply_all(log)
    assert fold.sequence == log[0].sequence


def test_a_shared_subject_hides_no_foreign_origin_and_no_foreign_event() -> None:
    """What the name in the subject showed beside origin and event, the envelope shows; nothing else is let through."""
    observed = AllocationObserved(node="n1", namespace="ns", pod="p", container="c")
    log = in_form([event(observed, "n1/ns/p/c", source=AGENT, at=1)], [True])
    for foreign in (
        "ledger.node.n2.allocation.~.observed",
        "ledger.node.n1.allocation.~.ended",
        "ledger.node.n1.pod.~.observed",
    ):
        fold = folded(AllocationsProjection(), [log[0], log[1]._replace(subject=foreign)])
        assert not fold.state.tables()["container_allocation_report"].rows
    (report,) = folded(AllocationsProjection(), log).state.tables()["container_allocation_report"].rows.values()
    assert report.reported_at == hour(1)
