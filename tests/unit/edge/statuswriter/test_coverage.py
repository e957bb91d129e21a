"""What an incomplete node shows of its labels: in its condition at once, and in an Event after a while."""

from datetime import datetime
from typing import Any

import pytest

from gpuledger.api.reasons import EventReason
from gpuledger.domain.fact import Fact
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.kube.events import NOTE_BYTES_MAX
from gpuledger.edge.statuswriter.desired.coverage import AGREE, DIFFERENCES_SHOWN_MAX, NO_FEATURES, CoverageChecks
from gpuledger.edge.statuswriter.desired.state import DesiredState, desired_object
from gpuledger.edge.statuswriter.events.series import is_fresh
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import (
    NodeFeaturesGone,
    NodeFeaturesObserved,
    NodeInventoryChanged,
    NodeInventoryWithdrawn,
    NodeObserved,
    PciDevice,
)
from support.events import event, hour
from support.gpu_states import COMPLETE, INCOMPLETE, desired_state
from support.inventory import MODULE

NODE = Key(Kind.NODE, "w1")
PREFIX = "gpu.deckhouse.io/"
FIRST = {"device.00.vendor": "10de", "device.00.device": "2330", "device.00.class": "0302"}
RIGHT = {"present": "true", "device-count": "1", **FIRST}


def labelled(**changes: str | None) -> tuple[str, Any]:
    """The node with the labels of one H100; None leaves one out, and `_` stands for what a name cannot have."""
    labels = RIGHT | {name.replace("__", ".").replace("_", "-"): value for name, value in changes.items()}
    kept = {f"{PREFIX}{name}": value for name, value in labels.items() if value is not None}
    return "w1", NodeObserved(uid="u", labels={**kept, "nvidia.com/gpu.present": "true"})


def featured(*classes: str) -> tuple[str, Any]:
    devices = [
        PciDevice(index=at, pci_vendor="10de", pci_device="2330", pci_class=one) for at, one in enumerate(classes)
    ]
    return "w1", NodeFeaturesObserved(devices=tuple(devices))


IS_INCOMPLETE = ("w1", NodeInventoryChanged(present=True, conditions=(INCOMPLETE,)))
IS_COMPLETE = ("w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,)))


def message(state: DesiredState) -> str:
    shown = desired_object(state, NODE, node_feature_rule())
    assert shown is not None
    (condition,) = (one for one in shown.status["conditions"] if one["type"] == "InventoryComplete")
    return str(condition["message"])


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ([labelled(), featured("0302")], AGREE),
        ([labelled()], NO_FEATURES),
        ([featured("0302"), ("w1", NodeFeaturesGone()), labelled()], NO_FEATURES),
        ([labelled(device_count="2"), featured("0302")], f"{PREFIX}device-count is 2, not 1"),
        ([labelled(device__00__class=None), featured("0302")], f"{PREFIX}device.00.class=0302 is missing"),
        ([labelled(), featured("0b40")], f"{PREFIX}present=true is unexpected"),
    ],
)
def test_an_incomplete_node_says_which_labels_differ(facts: list[Any], text: str) -> None:
    shown = message(desired_state(*facts, IS_INCOMPLETE))
    assert shown.startswith("None. ")
    assert text in shown
    assert message(desired_state(*facts, IS_INCOMPLETE, IS_COMPLETE)) == "Every GPU of the node is found and described."


def test_labels_that_agree_do_not_clear_the_rule_of_gpus_that_the_ledger_does_not_have() -> None:
    """A watcher records the PCI devices that the rule looks for, so nothing here shows that it lacks one."""
    assert "gpuledger nfd coverage" in message(desired_state(labelled(), featured("0302"), IS_INCOMPLETE))


def surveyed(reason: str) -> tuple[str, Any]:
    return MODULE, ModulePrerequisiteChanged(met=True, reason=reason)


def test_where_agents_find_the_gpus_nobody_is_to_label_nodes() -> None:
    by_agents, by_nfd = surveyed("NodesSurveyedByAgents"), surveyed("PrerequisitesMet")
    state = desired_state(by_agents, IS_INCOMPLETE)
    assert message(state) == "None."
    checks = CoverageChecks(state.coverage, node_feature_rule(), lambda: hour(99), 300.0)
    assert list(checks.take_occurrences()) == []
    later = desired_state(by_agents, IS_INCOMPLETE, by_nfd)
    assert NO_FEATURES in message(later)
    assert NODE in later.take_changed()


def test_many_differences_fit_into_an_event() -> None:
    shown = message(desired_state(("w1", NodeObserved(uid="u")), featured(*["0302"] * 8), IS_INCOMPLETE))
    assert shown.count("is missing") == DIFFERENCES_SHOWN_MAX
    assert f"and {2 + 3 * 8 - DIFFERENCES_SHOWN_MAX} more" in shown
    assert len(shown.encode()) < NOTE_BYTES_MAX


def test_only_other_labels_of_an_incomplete_node_change_its_object() -> None:
    def changes(*facts: Any) -> bool:
        state, before = desired_state(*facts), desired_state(*facts[:-1])
        before.take_changed()
        return NODE in state.take_changed() and message(state) != message(before)

    assert changes(labelled(), featured("0302"), IS_INCOMPLETE, labelled(device_count="2"))
    assert not changes(labelled(), featured("0302"), IS_INCOMPLETE, labelled())


class Watch:
    """The checks of a state at times that the test gives."""

    def __init__(self, *facts: Any) -> None:
        self.state = desired_state(*facts)
        self.now = hour(0)
        self.checks = CoverageChecks(self.state.coverage, node_feature_rule(), lambda: self.now, 1800.0)

    def at(self, now: datetime) -> list[str]:
        self.now = now
        found = list(self.checks.take_occurrences())
        assert all(one.reason is EventReason.LABELS_CHECKED and one.is_warning and one.key == NODE for one in found)
        return [one.note for one in found]


def test_what_stays_incomplete_is_announced_once_and_again_when_it_changes() -> None:
    facts = [labelled(device_count="2"), featured("0302"), IS_INCOMPLETE]
    watch = Watch(*facts)
    assert watch.at(hour(3)) == []
    (first,) = watch.at(hour(3.5))
    assert "device-count is 2, not 1" in first
    assert watch.at(hour(5)) == watch.at(hour(9)) == []

    watch.state.coverage.observe_labels(Fact(event(NodeObserved(uid="u"), "w1", at=10), 4, 0), {})
    (second,) = watch.at(hour(10))
    assert "device-count=1 is missing" in second
    assert watch.at(hour(11)) == []


@pytest.mark.parametrize("end", [IS_COMPLETE, ("w1", NodeInventoryWithdrawn())])
def test_what_became_complete_is_not_announced(end: Any) -> None:
    assert Watch(labelled(), featured("0302"), IS_INCOMPLETE, end).at(hour(99)) == []


def test_a_repeated_decision_does_not_put_the_check_off() -> None:
    again = ("w1", NodeInventoryChanged(present=False, conditions=(INCOMPLETE,)))
    assert len(Watch(labelled(), featured("0302"), IS_INCOMPLETE, again).at(hour(3.5))) == 1


def test_the_event_is_still_fresh_when_the_check_is_due() -> None:
    settings = StatusWriterSettings()
    assert settings.coverage_after_s < settings.event_age_max_s
    state = desired_state(labelled(), IS_INCOMPLETE)
    since = state.coverage.incomplete.rows["w1"]
    now = [hour(2)]
    checks = CoverageChecks(state.coverage, node_feature_rule(), lambda: now[0], settings.coverage_after_s)
    now[0] = datetime.fromtimestamp(since.at.timestamp() + settings.coverage_after_s, tz=since.at.tzinfo)
    (one,) = checks.take_occurrences()
    recorded = one._replace(recorded_ns=int(since.at.timestamp() * 1e9))
    assert is_fresh(recorded, now[0], settings.event_age_max_s)
