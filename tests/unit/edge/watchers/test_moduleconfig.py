"""The module's settings, as they are read from a ModuleConfig and from the installation."""

from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.compose.edge import check_module
from gpuledger.edge.watchers.decide import AnyKind, LastRecord, WatchedObjects, differences, note
from gpuledger.edge.watchers.resources import moduleconfig
from gpuledger.edge.watchers.resources.module_refusals import Installation
from gpuledger.edge.watchers.service import SettingsInForce
from gpuledger.events.settings import NOT_IN_FORCE_MAX, SettingsChanged
from gpuledger.runtime.settings import MODULE_SETTINGS, SettingsError, read_settings
from support.events import START


def module_config(settings: object, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": MODULE_CONFIG}, "spec": {"settings": settings, **spec}}


def seen(kind: AnyKind, *objects: dict[str, Any]) -> Any:
    return WatchedObjects(kind, map(kind.read, objects)).payload(MODULE_CONFIG)


NOTHING_INSTALLED = Installation({})

UNSET = SettingsChanged(claim_references="Redacted")
"""The settings of a ModuleConfig that leaves everything out."""


def settings(given: object, **spec: Any) -> SettingsChanged:
    payload = seen(moduleconfig.KIND, module_config(given, **spec))
    assert isinstance(payload, SettingsChanged)
    return payload.model_copy(update={"not_in_force": ()})


def in_vain(given: object, installed: Installation = NOTHING_INSTALLED, **spec: Any) -> list[str]:
    """What a ModuleConfig sets in vain: field, problem, and what is in force instead."""
    payload = seen(moduleconfig.kind(installed), module_config(given, **spec))
    return [f"{one.field}|{one.problem}|{one.in_force}" for one in payload.not_in_force]


def test_without_a_module_config_the_defaults_are_in_force() -> None:
    kind, recorded = moduleconfig.KIND, dict[str, LastRecord]()
    (fact,) = differences(kind, recorded, WatchedObjects(kind), (MODULE_CONFIG,), START)
    assert (fact.subject, fact.data) == (MODULE_CONFIG, UNSET)
    note(kind, recorded, fact)
    assert differences(kind, recorded, WatchedObjects(kind), (MODULE_CONFIG,), START) == []


def test_every_setting_is_read() -> None:
    given = {
        "managedNodes": {"labelKey": "example.com/gpu", "enabledByDefault": False},
        "deviceApproval": {"mode": "Selector", "selector": {"matchLabels": {"team": "a"}}},
        "scheduling": {"defaultStrategy": "BinPack", "topologyKey": "rack"},
        "inventory": {"resyncPeriod": "5m"},
        "highAvailability": True,
        "bootstrap": {
            **{name: {"enabled": False} for name in ("validator", "gfd", "dcgm", "dcgmExporter")},
            "heartbeats": 1,
            "recoveryHeartbeats": 10,
            "validationTimeout": "10m",
        },
        "maxSlicesPerDevice": 64,
    }
    assert settings(given, enabled=False) == SettingsChanged(
        enabled=False,
        managed_label_key="example.com/gpu",
        enabled_by_default=False,
        approval_mode="Selector",
        approval_selector={"team": "a"},
        scheduling_strategy="BinPack",
        topology_key="rack",
        resync_period_s=300,
        high_availability=True,
        validator_enabled=False,
        gfd_enabled=False,
        dcgm_enabled=False,
        dcgm_exporter_enabled=False,
        heartbeats=1,
        recovery_heartbeats=10,
        validation_timeout_s=600,
        max_slices_per_device=64,
        claim_references="Redacted",
    )


def expressing(operator: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "a", "operator": operator}]}


@pytest.mark.parametrize(
    ("given", "expected", "field"),
    [
        ({"inventory": {"resyncPeriod": "0s"}}, {}, "inventory.resyncPeriod"),
        ({"inventory": {"resyncPeriod": "29s"}}, {}, "inventory.resyncPeriod"),
        ({"inventory": {"resyncPeriod": "1d"}}, {}, "inventory.resyncPeriod"),
        ({"inventory": {"resyncPeriod": 30}}, {}, "inventory.resyncPeriod"),
        ({"managedNodes": {"labelKey": ""}}, {}, "managedNodes.labelKey"),
        ({"managedNodes": {"labelKey": "bad key"}}, {}, "managedNodes.labelKey"),
        ({"scheduling": {"topologyKey": "a b"}}, {}, "scheduling.topologyKey"),
        ({"highAvailability": "yes"}, {}, "highAvailability"),
        ({"bootstrap": {"gfd": {"enabled": "no"}}}, {}, "bootstrap.gfd.enabled"),
        ({"bootstrap": {"heartbeats": 0}}, {}, "bootstrap.heartbeats"),
        ({"bootstrap": {"heartbeats": True}}, {}, "bootstrap.heartbeats"),
        ({"bootstrap": {"recoveryHeartbeats": 11}}, {}, "bootstrap.recoveryHeartbeats"),
        ({"bootstrap": {"validationTimeout": "0m"}}, {}, "bootstrap.validationTimeout"),
        ({"maxSlicesPerDevice": 65}, {}, "maxSlicesPerDevice"),
        ({"maxSlicesPerDevice": "8"}, {}, "maxSlicesPerDevice"),
        ({"deviceApproval": {"mode": "Auto"}}, {"approval_mode": "Manual"}, "deviceApproval.mode"),
        ({"deviceApproval": {"mode": []}}, {"approval_mode": "Manual"}, "deviceApproval.mode"),
        (
            {"deviceApproval": {"mode": "Selector", "selector": []}},
            {"approval_mode": "Manual"},
            "deviceApproval.selector",
        ),
        (
            {
                "deviceApproval": {
                    "mode": "Selector",
                    "selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]},
                }
            },
            {"approval_mode": "Manual"},
            "deviceApproval.selector.matchExpressions[0].operator",
        ),
        (
            {
                "deviceApproval": {
                    "mode": "Selector",
                    "selector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
                }
            },
            {"approval_mode": "Manual"},
            "deviceApproval.selector.matchExpressions[0].values",
        ),
        ({"bootstrap": True}, {}, "bootstrap"),
    ],
)
def test_a_setting_that_is_not_understood_is_a_problem_and_approves_nothing(
    given: Any, expected: Any, field: str
) -> None:
    assert settings(given) == UNSET.model_copy(update=expected)
    (problem,) = moduleconfig.KIND.read(module_config(given)).problems
    assert problem.startswith(f"{field} is ")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"higAvailability": True}, "higAvailability is no setting; did you mean highAvailability?"),
        ({"bootstrap": {"gdf": {"enabled": False}}}, "bootstrap.gdf is no setting; did you mean bootstrap.gfd?"),
        ({"x": 1}, "x is no setting"),
        (
            {"deviceApproval": {"mode": "Selector", "selector": {"labels": {}}}},
            "'labels' in deviceApproval.selector is not known",
        ),
    ],
)
def test_a_setting_that_nobody_knows_is_a_problem(given: Any, problem: str) -> None:
    assert moduleconfig.KIND.read(module_config(given)).problems == (problem,)


@pytest.mark.parametrize(
    ("given", "field", "problem", "in_force"),
    [
        (
            {"bootstrap": {"validationTimeout": "10 minutes"}},
            "bootstrap.validationTimeout",
            " is '10 minutes', and not a period such as 30s, 5m or 1h",
            "5m",
        ),
        ({"bootstrap": {"heartbeats": 0}}, "bootstrap.heartbeats", " is 0, and not a number from 1 to 10", "3"),
        (
            {"inventory": {"resyncPeriod": "1s"}},
            "inventory.resyncPeriod",
            " is '1s', and not a period of at least 30s, such as 30s, 5m or 1h",
            "30s",
        ),
        ({"bootstrap": {"gfd": {"enabled": "no"}}}, "bootstrap.gfd.enabled", " is 'no', and not true or false", "true"),
        (
            {"deviceApproval": {"mode": "Auto"}},
            "deviceApproval.mode",
            " is 'Auto', and not Manual, Automatic or Selector",
            "Manual",
        ),
        (
            {"deviceApproval": {"mode": "Selector", "selector": 1}},
            "deviceApproval.selector",
            " is 1",
            "deviceApproval.mode Manual",
        ),
        ({"dra": {"claimReferences": "No"}}, "dra.claimReferences", " is 'No', and not Full or Redacted", "Redacted"),
        ({"higAvailability": 1}, "higAvailability", " is no setting; did you mean highAvailability?", ""),
        (
            {"managedNodes": True},
            "managedNodes",
            " is True, and not an object with enabledByDefault, labelKey",
            "every default below it",
        ),
        ([], "settings", " is a list, and not an object", "every default"),
    ],
)
def test_what_is_not_in_force_is_recorded_with_what_is_meant_and_what_holds_instead(
    given: Any, field: str, problem: str, in_force: str
) -> None:
    assert in_vain(given) == [f"{field}|{field}{problem}|{in_force}"]


def test_what_is_recorded_names_the_generation_that_was_read() -> None:
    config = module_config({"x": 1})
    config["metadata"]["generation"] = 7
    payload = seen(moduleconfig.KIND, config)
    assert (payload.generation, [one.field for one in payload.not_in_force]) == (7, ["x"])
    assert seen(moduleconfig.KIND, module_config({})).generation is None


@pytest.mark.parametrize("odd", ["x" * 5000, "a\0b", "\0", "", "é" * 300])
def test_no_name_of_a_setting_keeps_the_others_from_being_recorded(odd: str) -> None:
    payload = seen(moduleconfig.KIND, module_config({odd: 1, "bootstrap": {"heartbeats": 2}}))
    assert payload.heartbeats == 2
    (one,) = payload.not_in_force
    assert "is no setting" in one.problem


def test_more_than_an_event_can_hold_is_counted() -> None:
    fields = in_vain({f"x{number:03}": 1 for number in range(100)})
    assert len(fields) == NOT_IN_FORCE_MAX
    assert fields[-1].startswith("settings|69 more settings cannot be used")


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("installed", [{}, {"highAvailability": True}, {"highAvailability": False}])
def test_high_availability_is_in_force_where_the_services_scale_themselves(installed: Any, asked: bool) -> None:
    assert in_vain({"highAvailability": asked}, Installation(installed, is_scaled=True)) == []


@pytest.mark.parametrize(("asked", "number"), [(True, "true"), (False, "false")])
def test_without_the_chart_nobody_puts_high_availability_in_force(asked: bool, number: str) -> None:
    (one,) = in_vain({"highAvailability": asked})
    field, problem, instead = one.split("|")
    assert (field, instead) == ("highAvailability", "what runs now")
    assert problem.startswith(f"highAvailability is {number}, but these services run in no Deployment of the chart")


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist"])
def test_devices_are_approved_by_all_operators_of_label_selectors(operator: str) -> None:
    values = ["gold", "tin"] if operator in {"In", "NotIn"} else []
    expression = {"key": "tier", "operator": operator} | ({"values": values} if values else {})
    selector = {"matchLabels": {"team": "a"}, "matchExpressions": [expression]}
    found = settings({"deviceApproval": {"mode": "Selector", "selector": selector}})
    assert found.approval_selector == {"team": "a"}
    assert [one.model_dump() for one in found.approval_requirements] == [
        {"key": "tier", "operator": operator, "values": tuple(values), "is_field": False}
    ]


def test_the_settings_of_the_installation_are_those_that_a_module_config_leaves_out() -> None:
    installed = {
        "bootstrap": {"heartbeats": 1, "gfd": {"enabled": False}},
        "deviceApproval": {"mode": "Selector", "selector": {"matchLabels": {"team": "a", "tier": "gold"}}},
    }
    kind = moduleconfig.kind(Installation(installed))
    alone = seen(kind)
    assert (alone.heartbeats, alone.gfd_enabled, alone.approval_selector) == (1, False, {"team": "a", "tier": "gold"})
    above = {"bootstrap": {"heartbeats": 2}, "deviceApproval": {"selector": {"matchLabels": {"team": "b"}}}}
    both = seen(kind, module_config(above))
    assert (both.heartbeats, both.gfd_enabled) == (2, False)
    assert (both.approval_mode, both.approval_selector) == ("Selector", {"team": "b"})


def test_the_configuration_of_another_module_is_none_of_ours() -> None:
    other = {"metadata": {"name": "other"}, "spec": {"enabled": False}}
    assert seen(moduleconfig.KIND, other) == UNSET


def test_idle_watchers_compare_as_often_as_the_settings_say() -> None:
    in_force = SettingsInForce()
    assert in_force.resync_period_s() == 30.0
    for given_s, expected_s in ((300, 300.0), (1, 30.0)):
        in_force.listen(SettingsChanged(resync_period_s=given_s))
        assert in_force.resync_period_s() == expected_s


def test_settings_of_the_installation_that_cannot_be_used_are_refused_all_at_once(tmp_path: Path) -> None:
    text = '{"bootstrap": {"heartbeats": 0}, "x": 1}'
    with pytest.raises(SettingsError, match=r"bootstrap.heartbeats is 0, .* to 10; x is no setting"):
        check_module(read_settings({MODULE_SETTINGS: text}, tmp_path))
    check_module(read_settings({MODULE_SETTINGS: '{"bootstrap": {"heartbeats": 1}}'}, tmp_path))


@pytest.mark.parametrize("text", ["[]", "{", "1"])
def test_settings_that_are_no_object_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"{MODULE_SETTINGS} is no JSON"):
        read_settings({MODULE_SETTINGS: text}, tmp_path)
