"""Folds that pass by what they do not hear: the same rows, positions and counts as of those that look at each event."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.deciders.sources.decide import on_missing_rules
from gpuledger.domain.devices.fold import Devices
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded, Undecoded, parse
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN, Generations, Position, number_of
from gpuledger.events.publishing import Rule
from gpuledger.ledger.api import Message
from gpuledger.projection.checker import Checked, Checker
from gpuledger.projection.definition import Decisions, Numbering, Projection, RefusedEvent, event_of
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold
from gpuledger.projection.log_numbers import LogNumbers
from gpuledger.readmodels.projections import DevicesProjection, NodesProjection
from gpuledger.tools.queries.backend import all_projections
from support.deciders import AwayProjection
from support.events import AGENT, GENERATION, event, hour, message

HEARD, PASSED_BY = DeviceFailed(kind="DBE"), NodeRegistered()
KINDS: dict[str, Payload] = {"d": HEARD, "n": PASSED_BY, "e": NodeDecommissioned()}


def log_of(kinds: Sequence[str], numbers: Sequence[int] | None = None) -> list[Message]:
    """A log in which a letter stands for an event, and `r` for one that enforces a rule."""
    messages = []
    for position, kind in enumerate(kinds, 1):
        number = position if numbers is None else numbers[position - 1]
        one = enforcing(number) if kind == "r" else event(KINDS[kind], "d1" if kind == "d" else "n1", number=number)
        messages.append(message(one, position))
    return messages


def enforcing(number: int) -> Decoded:
    (decision,) = on_missing_rules([EnforcedRule(Rule.PUBLISHERS, 1, ORIGIN)], hour(1))
    return event_of(decision, "/services/sources", Numbering("rules", number))


def outcome(fold: Fold) -> tuple[Any, ...]:
    rows = {name: table.rows for name, table in fold.state.tables().items()}
    return number_of(fold.sequence), fold.events, fold.anchor, rows, dict(fold.enforced.rules)


def checked(messages: Sequence[Message]) -> list[Checked]:
    return list(map(Checker().check, messages))


def of_each(projection: Projection, messages: Sequence[Message], **options: Any) -> tuple[Any, ...]:
    """What a fold with numbers of its own makes of one message after the other, each looked at anew."""
    fold = Fold(projection, GENERATION, **options)
    for one in messages:
        fold._apply(fold.checker.check(one))
    return outcome(fold)


def of_each_read(projection: Projection, messages: Sequence[Message]) -> tuple[Any, ...]:
    """What a fold with numbers of its own makes of one message after the other."""
    fold = Fold(projection, GENERATION)
    for one in messages:
        fold.apply(one)
    return outcome(fold)


logs = st.lists(st.tuples(st.sampled_from("dnner"), st.integers(1, 6)), max_size=16)


class Reading(DevicesProjection):
    """Notes of each message what was folded before it."""

    reads = True

    def __init__(self) -> None:
        self.read_at: list[tuple[int, int]] = []

    def read(self, state: Devices, message: Message, event: Undecoded | None, generations: Generations) -> Decisions:
        assert event is not None
        assert event == parse(message.data)
        assert generations.has(Position(GENERATION, message.sequence))
        self.read_at.append((number_of(message.sequence), len(state.failure)))
        return ()


@given(logs, st.integers(1, 6), st.sets(st.integers(1, 16), max_size=2))
def test_who_reads_every_message_does_so_before_it_is_folded_and_behind_all_before(
    log: list[tuple[str, int]], at_once: int, skipped_numbers: set[int]
) -> None:
    messages = log_of([kind for kind, _ in log], [number for _, number in log])
    batch, numbers = checked(messages), LogNumbers()
    for skipped in ([], [Position(GENERATION, number) for number in skipped_numbers]):
        together, each = Reading(), Reading()
        shared = Fold(together, GENERATION, numbers=numbers, skipped=skipped)
        alone = Fold(each, GENERATION, skipped=skipped)
        for start in range(0, len(batch), at_once):
            shared.apply_all_checked(batch[start : start + at_once])
        for one in messages:
            alone.apply(one)
        assert outcome(shared) == outcome(alone)
        assert together.read_at == each.read_at
        assert [at for at, _ in each.read_at] == list(range(1, len(messages) + 1))


def test_the_chain_of_digests_does_not_depend_on_the_batches() -> None:
    messages = log_of("nd" * 20)
    for at_once in (1, 7, 40):
        fold, batch = Fold(SealsProjection(), GENERATION, numbers=LogNumbers()), checked(messages)
        for start in range(0, len(batch), at_once):
            fold.apply_all_checked(batch[start : start + at_once])
        assert outcome(fold) == of_each_read(SealsProjection(), messages)


@given(logs, st.integers(1, 6), st.sets(st.integers(1, 16), max_size=2))
def test_what_passes_by_changes_the_position_alone(
    log: list[tuple[str, int]], at_once: int, skipped_numbers: set[int]
) -> None:
    messages = log_of([kind for kind, _ in log], [number for _, number in log])
    batch, numbers = checked(messages), LogNumbers()
    for skipped in ([], [Position(GENERATION, number) for number in skipped_numbers]):
        for projection in (DevicesProjection(), NodesProjection()):
            shared = Fold(projection, GENERATION, numbers=numbers, skipped=skipped)
            alone = Fold(projection, GENERATION, skipped=skipped)
            for start in range(0, len(batch), at_once):
                shared.apply_all_checked(batch[start : start + at_once])
                alone.apply_all(messages[start : start + at_once])
            assert outcome(shared) == outcome(alone) == of_each(projection, messages, skipped=skipped)


@pytest.mark.parametrize("numbers", [LogNumbers(), None], ids=["shared", "own"])
def test_a_fold_looks_only_at_what_it_hears(monkeypatch: pytest.MonkeyPatch, numbers: LogNumbers | None) -> None:
    fold, batch = Fold(DevicesProjection(), GENERATION, numbers=numbers), checked(log_of("nd" * 50))
    fold.apply_all_checked(batch[:2])
    assert fold._hearing.heard(batch[2:], fold._numbers, fold._agreed) == batch[3::2]
    looked_at: list[Checked] = []
    monkeypatch.setattr(fold, "_apply", looked_at.append)
    fold.apply_all_checked(batch[2:])
    assert looked_at == batch[3::2]


def test_a_fold_with_numbers_of_its_own_tells_a_repeat_once() -> None:
    """Whoever looks at an event again gets the same answer, and another fold its own."""
    batch = checked(log_of("ndnd", [1, 2, 2, 2]))
    for _ in range(2):
        fold = Fold(NodesProjection(), GENERATION)
        for start in range(len(batch)):
            fold.apply_all_checked(batch[start : start + 1])
        assert fold.events == 2
        assert [one.counts(fold.seen) for one in batch] == [True, True, False, False]


def test_own_events_never_pass_by() -> None:
    """A decider has to see each of them come back, whether anything handles it or not."""
    own = event(PASSED_BY, "n1", number=1, source=AwayProjection().source)
    fold = Fold(AwayProjection(), GENERATION, numbers=LogNumbers())
    fold._hearing.passed_by.add(PASSED_BY.TYPE)
    batch = checked([message(own, 1)])
    fold._agreed = batch[0].checked_by
    assert fold._hearing.heard(batch, fold._numbers, fold._agreed) == batch
    assert not fold._hearing.passes(batch[0], fold._agreed)


def test_rules_that_a_fold_has_and_others_have_not_are_not_passed_by() -> None:
    """Who begins elsewhere may have a rule that those do not have by whom the messages were checked."""

    class Refusing(DevicesProjection):
        refusals = 0

        def refused(self, state: object, refusal: RefusedEvent) -> Decisions:
            self.refusals += 1
            return ()

    projection, of_another = Refusing(), event(PASSED_BY, "n2", number=3, source=AGENT)
    rules = EnforcedRules([EnforcedRule(Rule.PUBLISHERS, 1, ORIGIN)])
    fold = Fold(projection, GENERATION, numbers=LogNumbers(), enforced=rules)
    batch = checked([*log_of("nn"), message(of_another, 3)])
    for at in range(3):
        fold.apply_all_checked(batch[at : at + 1])
    assert projection.refusals == 1


def test_rules_that_a_fold_has_judge_what_others_have_counted_without_them() -> None:
    class Refusing(NodesProjection):
        refusals = 0

        def refused(self, state: object, refusal: RefusedEvent) -> Decisions:
            self.refusals += 1
            return ()

    projection, numbers = Refusing(), LogNumbers()
    batch = checked([*log_of("n"), message(event(PASSED_BY, "n2", number=2, source=AGENT), 2)])
    Fold(NodesProjection(), GENERATION, numbers=numbers).apply_all_checked(batch)
    rules = EnforcedRules([EnforcedRule(Rule.PUBLISHERS, 1, ORIGIN)])
    fold = Fold(projection, GENERATION, numbers=numbers, enforced=rules)
    fold.apply_all_checked(batch)
    assert projection.refusals == 1


def test_rules_that_change_within_a_batch_have_each_message_looked_at() -> None:
    fold, batch = Fold(DevicesProjection(), GENERATION, numbers=LogNumbers()), checked(log_of("nrn"))
    assert fold._hearing.heard(batch, LogNumbers(), batch[0].checked_by) is None
    assert fold._hearing.heard(batch[:2], LogNumbers(), batch[0].checked_by) == batch[:2]


@pytest.mark.parametrize("projection", all_projections(), ids=lambda one: one.name)
def test_nothing_passes_by_that_is_handled_or_observed(projection: Projection) -> None:
    fold = Fold(projection, GENERATION, numbers=LogNumbers())
    fold.apply_all_checked(checked(log_of("dne" * 3)))
    handled = {model.TYPE for model in projection.handlers}
    assert not fold._hearing.passed_by & handled
    if projection.observes and not projection.observed_types:
        assert not fold._hearing.passed_by


def test_an_event_of_the_edge_that_counts_for_nobody_is_no_ordinary_one() -> None:
    (one,) = checked([message(event(HEARD, "d1", source=AGENT), 1, data=b"{}")])
    assert one.ordinary_type == ""
