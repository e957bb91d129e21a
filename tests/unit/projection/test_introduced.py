"""Types of events that a build introduces: in force from a recorded position on, and until an earlier build says so."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.catalogue import registry
from gpuledger.events.publishing import Rule, SourceKind
from gpuledger.events.rule import RuleEnforced
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import DevicesProjection
from support.events import GENERATION, event, folded, hour, message, rows_of
from support.later_build import DeviceMelted, LaterDevices, later_build, melted

TYPE = DeviceMelted.TYPE
FIRST_RELEASE = {
    "allocation.ended", "allocation.observed", "device.errors-observed", "device.failed",
    "device.health-changed", "device.inserted", "device.pool-applied", "device.pool-refused",
    "device.pool-released", "device.removed", "node.agent-started", "node.clock-jumped", "node.decommissioned",
    "node.devices-observed", "node.events-dropped", "node.monitoring-observed", "node.registered",
    "slot.declared", "source.completed", "workload.ended", "workload.scheduled", "workload.submitted",
}  # fmt: skip


def enforced(version: int, number: int) -> Message:
    """The record that brings the type into force, or takes it out."""
    return message(event(RuleEnforced(version=version), TYPE, number=number, source="/services/sources"), 0)


def log(*kinds: str) -> list[Message]:
    """A log of events of the type (`m`) and records that change whether it is in force (`r`)."""
    melts, records = itertools.count(1), itertools.count(1)
    made = [message(melted(next(melts)), 0) if one == "m" else _record(next(records)) for one in kinds]
    return [one._replace(sequence=sequence) for sequence, one in enumerate(made, 1)]


def _record(number: int) -> Message:
    return enforced(number, number)


def melted_devices(fold: Fold) -> list[str]:
    return [row.device for row in fold.state.tables()["failure"].rows.values()]


def test_what_stands_before_a_type_is_in_force_is_unknown_for_ever() -> None:
    messages = log(*"mrmrm")
    with later_build():
        fold = folded(LaterDevices(), messages)
        assert melted_devices(fold) == ["d2"]
        assert fold.events == len(messages)
        sources = folded(SourcesProjection(), messages)
    earlier = folded(SourcesProjection(), messages)
    assert rows_of(sources)["source"] == rows_of(earlier)["source"]
    assert [row.unknown for row in sources.state.tables()["source"].rows.values() if row.unknown] == [2]
    assert melted_devices(folded(DevicesProjection(), messages)) == []


@given(st.lists(st.sampled_from("mr"), max_size=12), st.integers(0, 12))
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
    rules.add(TYPE, 1, 5)
    assert (rules.types, rules.other_types({TYPE})) == ({TYPE}, [])
    assert rules.other_types(set()) == [EnforcedRule(TYPE, 2, 0)]
    rules.add(TYPE, 2, 6)
    again = EnforcedRules(rules.take_changes())
    assert (again.types, again.other_types({TYPE})) == (set(), [EnforcedRule(TYPE, 3, 0)])


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
