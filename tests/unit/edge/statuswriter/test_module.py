"""The module's conditions: what its ModuleConfig sets in vain, and the generations that they are about."""

from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.statuswriter.desired.module import ModuleConfigured
from gpuledger.edge.statuswriter.desired.state import DesiredState, desired_object
from gpuledger.edge.statuswriter.fields import for_object, observe
from gpuledger.edge.statuswriter.metrics.gpu import GpuMetrics
from gpuledger.edge.statuswriter.objects import DesiredObject, Document, Key, Kind
from gpuledger.edge.statuswriter.reconcile.decide import Action, decide, is_drift
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.settings import SettingNotInForce, SettingsChanged
from gpuledger.tools.module_settings import settings_check
from support.gpu_states import desired_state
from support.statuswriter_parts import obj

KEY = Key(Kind.MODULE, MODULE_CONFIG)
HEARTBEATS = SettingNotInForce(field="bootstrap.heartbeats", problem="bootstrap.heartbeats is 0", in_force="3")
TYPO = SettingNotInForce(field="x", problem="x is no setting; did you mean y?")
MESSAGE = "bootstrap.heartbeats is 0. In force instead: 3. x is no setting; did you mean y? It has no effect."
MISSING = ModulePrerequisiteChanged(met=False, reason="NodeFeatureDiscoveryMissing", message="Enable it.")


def settings(*in_vain: SettingNotInForce, generation: int | None = 4) -> Any:
    return MODULE_CONFIG, SettingsChanged(generation=generation, not_in_force=in_vain)


def shown(state: DesiredState) -> DesiredObject | None:
    return desired_object(state, KEY, node_feature_rule())


def conditions(*facts: Any) -> list[Document]:
    found = shown(desired_state(*facts))
    return [] if found is None else found.status["conditions"]


def notes(*facts: Any) -> list[tuple[str, bool]]:
    return [(one.note, one.is_warning) for one in desired_state(*facts).take_occurrences()]


def test_settings_that_are_not_in_force_are_a_condition_with_the_generation_that_was_read() -> None:
    (one,) = conditions(settings(HEARTBEATS, TYPO))
    assert one == {
        "type": "Configured", "status": "False", "reason": "SettingsNotInForce", "message": MESSAGE,
        "lastTransitionTime": "2026-01-01T01:00:00Z", "observedGeneration": 4,
    }  # fmt: skip
    (one,) = conditions(settings(HEARTBEATS), settings(generation=5))
    assert one == {
        "type": "Configured", "status": "True", "reason": "SettingsInForce",
        "message": "Every setting of the ModuleConfig is in force.",
        "lastTransitionTime": "2026-01-01T02:00:00Z", "observedGeneration": 5,
    }  # fmt: skip


def test_the_time_of_the_condition_is_that_of_its_status() -> None:
    (one,) = conditions(settings(HEARTBEATS), settings(TYPO, generation=5))
    assert (one["lastTransitionTime"], one["observedGeneration"]) == ("2026-01-01T01:00:00Z", 5)


@pytest.mark.parametrize("facts", [[], [settings(generation=None)], [settings(TYPO), settings(generation=None)]])
def test_without_a_module_config_that_was_checked_nothing_is_shown(facts: list[Any]) -> None:
    assert conditions(*facts) == []


def test_what_is_not_in_force_is_announced_once_and_so_is_its_end() -> None:
    warned = (f"Configured is False: SettingsNotInForce. {MESSAGE}", True)
    assert notes(settings(HEARTBEATS, TYPO), settings(HEARTBEATS, TYPO, generation=5)) == [warned]
    mended = ("Configured is True: SettingsInForce.", False)
    assert notes(settings(HEARTBEATS, TYPO), settings(generation=5), settings(generation=6)) == [warned, mended]
    assert notes(settings(), settings(generation=5)) == []


def test_both_conditions_of_the_module_are_shown_and_measured() -> None:
    state = desired_state((MODULE_CONFIG, MISSING), settings(TYPO))
    found = shown(state)
    assert found is not None
    assert [one["type"] for one in found.status["conditions"]] == ["Configured", "PrerequisiteNotMet"]
    (family,) = (one for one in GpuMetrics(lambda: state).collect() if one.name == "gpu_inventory_condition")
    assert {one.labels["condition"]: one.value for one in family.samples} == {"Configured": 0, "PrerequisiteNotMet": 1}
    assert set(state.take_changed()) == {KEY}
    assert list(state.keys(Kind.MODULE)) == [KEY]


def stored(desired: DesiredObject, generation: int, **more: Any) -> Document:
    return obj(metadata={"generation": generation}, status=desired.status, **more)


def test_an_edited_module_config_gets_its_generation_and_is_no_drift() -> None:
    desired = shown(desired_state((MODULE_CONFIG, MISSING), settings(TYPO)))
    assert desired is not None
    at_4 = for_object(Kind.MODULE, desired, observe(Kind.MODULE, stored(desired, 4)))
    assert at_4 is not None
    then = observe(Kind.MODULE, stored(at_4, 4))
    assert decide(Kind.MODULE, at_4, withdrawn=False, observed=then) is Action.NOTHING
    edited = then._replace(generation=5, version="6")
    current = for_object(Kind.MODULE, desired, edited)
    assert current is not None
    generations = {one["type"]: one["observedGeneration"] for one in current.status["conditions"]}
    assert generations == {"Configured": 4, "PrerequisiteNotMet": 5}
    assert decide(Kind.MODULE, current, withdrawn=False, observed=edited) is Action.STATUS
    assert not is_drift(Kind.MODULE, desired, then, edited)
    assert is_drift(Kind.MODULE, desired, then, observe(Kind.MODULE, stored(DesiredObject({}, {}), 4)))


def test_conditions_of_others_on_the_module_config_are_none_of_ours() -> None:
    desired = shown(desired_state(settings(TYPO)))
    assert desired is not None
    others = {"conditions": [{"type": "Theirs", "status": "True"}, *desired.status["conditions"]]}
    assert observe(Kind.MODULE, obj(status=others)).status == observe(Kind.MODULE, obj(status=desired.status)).status


def configured(*in_vain: SettingNotInForce, generation: int | None = 4) -> ModuleConfigured | None:
    return desired_state(settings(*in_vain, generation=generation)).module_check.latest


def test_doctor_says_what_is_not_in_force() -> None:
    assert settings_check(None) == settings_check(configured(generation=None))
    assert (settings_check(None).status, settings_check(configured()).status) == ("ok", "ok")
    check = settings_check(configured(HEARTBEATS, TYPO))
    assert (check.status, check.detail) == ("warning", f"The ModuleConfig sets in vain: {MESSAGE}")
