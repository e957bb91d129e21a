"""Types of events that a build introduces: in force from a recorded position on, and until an earlier build says so."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.catalogue import registry
from gpuledger.events.envelope import Decoded
from gpuledger.events.publishing import Rule, SourceKind
from gpuledger.events.rule import RuleEnforced
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.errors import BadEventError
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.queries.backend import all_projections
from support.events import GENERATION, SERVICE, event, folded, hour, log_of, message, rows_of
from support.later_build import (
    DeviceCondemned,
    DeviceMelted,
    LaterDevices,
    NewerDevices,
    condemned,
    later_build,
    melted,
)

TYPE = DeviceMelted.TYPE
FIRST_RELEASE = {
    "allocation.ended", "allocation.observed", "device.errors-observed", "device.failed",
    "device.health-changed", "device.inserted", "device.pool-applied", "device.pool-refused",
    "device.pool-released", "device.removed", "node.agent-started", "node.clock-jumped", "node.decommissioned",
    "node.devices-observed", "node.events-dropped", "node.monitoring-observed", "node.registered",
    "slot.declared", "source.completed", "workload.ended", "workload.scheduled", "workload.submitted",
}  # fmt: skip


def log(*kinds: str) -> list[Message]:
    """A log of events of the types (`m`, and `c` of our own) and records that change whether these are in force.

    `r` changes that of `m`, `s` that of `c`, and `t` has folds check the times of events, which are far ahead in `f`.
    """
    next_number = itertools.count(1)
    versions = {kind: itertools.count(1) for kind in "rs"}

    def made(kind: str) -> Decoded:
        number = next(next_number)
        if kind == "m":
            return melted(number)
        if kind in "cf":
            return condemned(number, at=1000 if kind == "f" else 0)
        rule = {"r": TYPE, "s": DeviceCondemned.TYPE, "t": Rule.EVENT_TIMES}[kind]
        version = next(versions[kind]) if kind in versions else 1
        return event(RuleEnforced(version=version), rule, number=number, source="/services/sources")

    return log_of([made(kind) for kind in kinds])


def melted_devices(fold: Fold) -> list[str]:
    return [row.device for row in fold.state.tables()["failure"].rows.values()]


def test_what_stands_before_a_type_is_in_force_is_unknown_for_ever() -> None:
    messages = log(*"mrmrm")
    with later_build():
        fold = folded(LaterDevices(), messages)
        assert melted_devices(fold) == ["d3"]
        assert fold.events == len(messages)
        sources = folded(SourcesProjection(), messages)
    earlier = folded(SourcesProjection(), messages)
    assert rows_of(sources)["source"] == rows_of(earlier)["source"]
    assert [row.unknown for row in sources.state.tables()["source"].rows.values() if row.unknown] == [2]
    assert melted_devices(folded(DevicesProjection(), messages)) == []


def test_our_own_event_of_an_unknown_type_stops_nothing_and_is_folded_by_those_who_know_it() -> None:
    messages = log(*"cscsc")
    for projection in all_projections():
        assert folded(projection, messages).events == len(messages)
    with later_build():
        assert melted_devices(folded(NewerDevices(), messages)) == ["d1", "d3", "d5"]


def test_our_own_event_of_an_unknown_type_is_marked_alike_in_builds_that_know_it_and_in_those_that_do_not() -> None:
    messages = log(*"cscsct")
    earlier = folded(SourcesProjection(), messages)
    assert {row.source: row.unknown for row in earlier.state.tables()["source"].rows.values() if row.unknown} == {
        SERVICE: 2
    }
    with later_build():
        assert rows_of(folded(SourcesProjection(), messages)) == rows_of(earlier)


def test_what_a_service_decides_has_no_time_that_a_build_could_refuse() -> None:
    messages = log(*"tfsf")
    earlier = folded(SourcesProjection(), messages)
    assert not earlier.state.tables()["rejection"].rows
    with later_build():
        assert rows_of(folded(SourcesProjection(), messages)) == rows_of(earlier)


@pytest.mark.parametrize("subject", ["ledger.svc.pools.device.d2.condemned", "ledger.svc.pools.device.d1.melted"])
def test_our_own_event_of_an_unknown_type_under_a_subject_that_is_not_its_own_stops(subject: str) -> None:
    with pytest.raises(BadEventError, match="do not belong under"):
        folded(DevicesProjection(), [message(condemned(1), 1, subject=subject)])


@given(st.lists(st.sampled_from("mrcsft"), max_size=12), st.integers(0, 12))
def test_a_restart_or_an_upgrade_between_two_events_changes_nothing_for_sources(kinds: list[str], at: int) -> None:
    messages = log(*kinds)
    before = folded(SourcesProjection(), messages[:at])
    rules = EnforcedRules(before.enforced.rules.values())
    with later_build():
        after = Fold(SourcesProjection(), GENERATION, state=before.state, seen=before.seen, enforced=rules)
        after.apply_all(messages[at:])
        assert rows_of(after) == rows_of(folded(SourcesProjection(), messages))


def test_a_build_records_its_types_and_takes_others_out_of_force() -> None:
    rules = EnforcedRules()
    assert rules.other_types({TYPE}) == [EnforcedRule(TYPE, 1, 0)]
    rules.add(EnforcedRule(TYPE, 1, 5))
    assert (rules.in_force.types, rules.other_types({TYPE})) == (frozenset({TYPE}), [])
    assert rules.other_types(set()) == [EnforcedRule(TYPE, 2, 0)]
    rules.add(EnforcedRule(TYPE, 2, 6))
    again = EnforcedRules(rules.take_changes())
    assert (again.in_force.types, again.other_types({TYPE})) == (frozenset(), [EnforcedRule(TYPE, 3, 0)])


def test_only_a_service_that_enforces_rules_records_types() -> None:
    with later_build():
        fold = Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1))
        fold.enforce((), hour(1))
        assert fold.take_decided() == []
        fold.enforce(tuple(Rule), hour(1))
        assert TYPE in {one.subject for one in fold.take_decided()}


def test_a_type_of_the_edge_that_came_later_is_introduced() -> None:
    """Otherwise a build that brings it would fold what an earlier one passed over."""
    edge = {SourceKind.AGENTS, SourceKind.IMPORTERS}
    found = {
        f"{model.AGGREGATE}.{model.EVENT}"
        for model in registry.models()
        if edge & set(model.PUBLISH_RULE.publishers) and model.TYPE not in registry.introduced
    }
    assert found == FIRST_RELEASE
