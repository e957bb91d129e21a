"""Names that come and go share a subject: the grammar of both forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.events.catalogue import registry
from gpuledger.events.envelope import nats_subject_of, stands_under
from gpuledger.events.errors import SubjectError
from gpuledger.events.node import NodeDevicesWanted
from gpuledger.events.pod import PodGone
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced, rule_subject, rule_version
from gpuledger.events.subjects import (
    SHARED,
    SHARED_SINCE,
    aggregate_filter,
    escape,
    may_share,
    parse_subject,
    shared_filter,
    shared_subject,
    subject_of,
)
from gpuledger.ledger.memory import matcher
from gpuledger.ledger.permissions import desired_devices_subject
from support.events import event, message

NEWEST = RULE_VERSIONS[Rule.SHARED_SUBJECTS]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def test_every_aggregate_that_shares_is_in_the_catalogue_and_what_agents_ask_for_keeps_its_name() -> None:
    assert set(SHARED_SINCE) <= {model.AGGREGATE for model in registry.models()}
    assert set(SHARED_SINCE.values()) <= set(range(1, NEWEST + 1))
    for kept in (desired_devices_subject("w1"), rule_subject(Rule.SHARED_SUBJECTS)):
        assert shared_subject(kept, NEWEST) == kept
    assert not may_share(NodeDevicesWanted.AGGREGATE, NEWEST)


@given(aggregate=st.sampled_from(sorted({model.AGGREGATE for model in registry.models()})), name=NAMES)
def test_both_forms_have_six_tokens_and_say_who_recorded_what(aggregate: str, name: str) -> None:
    named = subject_of("/watchers/pods", aggregate, name, "observed")
    shared = shared_subject(named, NEWEST)
    assert shared_subject(named, 0) == named
    assert shared_subject(shared, NEWEST) == shared
    assert str(parse_subject(shared)) == shared
    assert parse_subject(shared)._replace(id=name) == parse_subject(named)
    assert (shared != named) == (aggregate in SHARED_SINCE)
    assert matcher(shared_filter(aggregate))(shared) == (aggregate in SHARED_SINCE)
    assert not matcher(shared_filter(aggregate))(named)
    assert matcher(aggregate_filter(aggregate))(shared)
    assert escape(name) != SHARED


@pytest.mark.parametrize("aggregate", ["device", "node", "unheard-of"])
def test_other_names_cannot_be_left_out(aggregate: str) -> None:
    with pytest.raises(SubjectError, match="canonical"):
        parse_subject(f"ledger.svc.watchers.{aggregate}.{SHARED}.observed")


@pytest.mark.parametrize(
    "subject", ["", "anything", "ledger.svc.watchers.pod.p", "ledger.svc.watchers.pod.p.observed.x"]
)
def test_what_is_no_subject_of_the_grammar_has_one_form(subject: str) -> None:
    assert shared_subject(subject, NEWEST) == subject


def test_an_event_stands_under_both_forms_of_its_subject_and_under_no_other() -> None:
    gone = event(PodGone(uid="u"), "team/p", source="/watchers/pods")
    assert stands_under(gone, nats_subject_of(gone))
    assert stands_under(gone, f"ledger.svc.watchers.pod.{SHARED}.gone")
    assert not stands_under(gone, f"ledger.svc.watchers.pod.{SHARED}.observed")


def test_the_version_that_an_event_brings_into_force() -> None:
    rule = event(RuleEnforced(version=3), Rule.SHARED_SUBJECTS, source="/services/sources")
    assert rule_version(message(rule, 1).data) == 3
    assert rule_version(message(event(PodGone(uid="u"), "team/p", source="/watchers/pods"), 1).data) == 0
    assert rule_version(b"{") == 0
