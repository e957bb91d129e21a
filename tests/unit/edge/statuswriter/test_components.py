"""The components' DaemonSets: when there are which, and where their pods may run."""

from dataclasses import replace
from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.labels import COMPONENT_BY_APP
from gpuledger.api.phases import DRIVER_STEP, WATCHING_STEP
from gpuledger.domain.inventory.state import DEFAULT_SETTINGS
from gpuledger.edge.kube.crds import component_daemon_sets
from gpuledger.edge.statuswriter.desired.components import NO_COMPONENTS, SWITCHES, Components
from gpuledger.edge.statuswriter.objects import DesiredObject, Document, Key, Kind
from gpuledger.runtime.settings import COMPONENT_NAMES, ComponentSettings, SettingsError, read_components

IMAGES = {name: f"registry.example/{name}:1" for name in COMPONENT_NAMES}
SETTINGS = ComponentSettings(manage=True, namespace="gpus", images=IMAGES)
COMPONENTS = Components(SETTINGS, component_daemon_sets())
APPS = {app: component for app, component in COMPONENT_BY_APP.items() if component != "node-agent"}


def shown(app: str, components: Components = COMPONENTS, **module: Any) -> DesiredObject | None:
    key = Key(Kind.COMPONENT, app, "gpus")
    return components.desired(DEFAULT_SETTINGS._replace(module=MODULE_CONFIG, **module), key)


def pod(app: str, components: Components = COMPONENTS, **module: Any) -> Document:
    desired = shown(app, components, **module)
    assert desired is not None
    spec: Document = desired.main["spec"]["template"]["spec"]
    return spec


def test_every_component_is_shipped_under_the_name_that_watchers_expect() -> None:
    assert {one["metadata"]["name"] for one in component_daemon_sets()} == set(APPS)
    assert set(SWITCHES) == set(APPS.values()) == set(COMPONENT_NAMES)
    for one in component_daemon_sets():
        labels = {"app": one["metadata"]["name"]}
        assert one["spec"]["selector"]["matchLabels"] == one["spec"]["template"]["metadata"]["labels"] == labels


@pytest.mark.parametrize("app", APPS)
def test_pods_have_fixed_bounds_and_tolerate_every_taint(app: str) -> None:
    spec = pod(app)
    assert spec["tolerations"] == [{"operator": "Exists"}]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        assert container["image"] == IMAGES[APPS[app]]
        assert container["resources"].keys() == {"requests", "limits"}
        assert all({"cpu", "memory"} == one.keys() for one in container["resources"].values())


def test_the_steps_of_the_validator_are_those_that_verdicts_follow_from() -> None:
    validator = pod("nvidia-operator-validator")
    assert [one["name"] for one in validator["initContainers"]] == [DRIVER_STEP, "toolkit-validation"]
    (watching,) = validator["containers"]
    assert (watching["name"], watching["readinessProbe"]["exec"]["command"][0]) == (WATCHING_STEP, "nvidia-smi")


@pytest.mark.parametrize(
    ("module", "managed"),
    [
        ({}, {"key": "gpu.deckhouse.io/enabled", "operator": "NotIn", "values": ["false"]}),
        ({"enabled_by_default": False}, {"key": "gpu.deckhouse.io/enabled", "operator": "In", "values": ["true"]}),
        ({"managed_label_key": "x/y"}, {"key": "x/y", "operator": "NotIn", "values": ["false"]}),
    ],
)
def test_pods_run_on_managed_nodes_with_gpus_only(module: dict[str, Any], managed: Document) -> None:
    affinity = pod("nvidia-dcgm", **module)["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "gpu.deckhouse.io/present", "operator": "Exists"}, managed]


SHARING = Components(replace(SETTINGS, shared_hostengine=True), component_daemon_sets())


def test_the_host_engine_listens_on_its_node_alone_unless_pods_may_ask_it() -> None:
    alone, shared = pod("nvidia-dcgm"), pod("nvidia-dcgm", SHARING)
    assert (alone["hostNetwork"], shared["hostNetwork"]) == (True, False), "no NetworkPolicy guards a host's network"
    assert "127.0.0.1" in alone["containers"][0]["command"]
    (container,) = shared["containers"]
    assert container["command"] == ["nv-hostengine", "-n", "-b", "ALL", "-p", "5555"]
    assert container["readinessProbe"]["tcpSocket"] == {"port": 5555}
    assert container["ports"] == [{"name": "hostengine", "containerPort": 5555, "protocol": "TCP"}]


@pytest.mark.parametrize(("components", "engine"), [(COMPONENTS, "127.0.0.1:5555"), (SHARING, "nvidia-dcgm:5555")])
def test_the_exporter_asks_the_one_host_engine_of_its_node(components: Components, engine: str) -> None:
    (container,) = pod("nvidia-dcgm-exporter", components)["containers"]
    assert {"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": engine} in container["env"]


def test_where_nodes_are_labelled_pods_run_by_either_label() -> None:
    labelling = Components(replace(SETTINGS, label_nodes=True), component_daemon_sets())
    affinity = pod("nvidia-dcgm", labelling, enabled_by_default=False)["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    managed = {"key": "gpu.deckhouse.io/enabled", "operator": "In", "values": ["true"]}
    assert terms == [
        {"matchExpressions": [{"key": f"gpu.deckhouse.io/{label}", "operator": "Exists"}, managed]}
        for label in ("present", "detected")
    ]
    assert (labelling.label_nodes, COMPONENTS.label_nodes, NO_COMPONENTS.label_nodes) == (True, False, False)
    assert not Components(ComponentSettings(manage=False, label_nodes=True), component_daemon_sets()).label_nodes


@pytest.mark.parametrize("app", APPS)
def test_a_component_that_is_switched_off_is_not_desired_but_the_others_are(app: str) -> None:
    off: dict[str, Any] = {SWITCHES[APPS[app]]: False}
    assert {other for other in APPS if shown(other, **off) is None} == {app}


@pytest.mark.parametrize("app", APPS)
def test_a_disabled_module_desires_no_components(app: str) -> None:
    assert shown(app, enabled=False) is None


def test_other_namespaces_have_no_desired_components() -> None:
    assert COMPONENTS.desired(DEFAULT_SETTINGS, Key(Kind.COMPONENT, "nvidia-dcgm", "other")) is None
    assert COMPONENTS.desired(DEFAULT_SETTINGS, Key(Kind.COMPONENT, "other", "gpus")) is None


def test_where_somebody_else_runs_them_nothing_is_kept() -> None:
    assert (NO_COMPONENTS.every_key(), NO_COMPONENTS.are_kept) == ([], False)
    theirs = Components(ComponentSettings(manage=False), component_daemon_sets())
    assert (theirs.every_key(), theirs.are_kept, shown("nvidia-dcgm", theirs)) == ([], False, None)


def test_runtime_class_and_pull_secrets_are_filled_in_where_they_are_given() -> None:
    assert not {"runtimeClassName", "imagePullSecrets"} & pod("nvidia-dcgm").keys()
    given = ComponentSettings(True, "gpus", IMAGES, "nvidia", ("pull",))
    spec = pod("nvidia-dcgm", Components(given, component_daemon_sets()))
    assert (spec["runtimeClassName"], spec["imagePullSecrets"]) == ("nvidia", [{"name": "pull"}])


def test_what_is_shipped_stays_as_it_is() -> None:
    pod("nvidia-dcgm")
    assert all("image" not in one["spec"]["template"]["spec"]["containers"][0] for one in component_daemon_sets())


def test_settings_come_as_one_json_object() -> None:
    assert read_components(None) == read_components("") == ComponentSettings()
    text = '{"manage": true, "images": {"validator": "a", "gfd": "b", "dcgm": "c", "dcgm-exporter": "d"}}'
    assert read_components(text).images["dcgm-exporter"] == "d"
    assert read_components('{"pull_secrets": ["a"]}').pull_secrets == ("a",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "is not a JSON object with manage, namespace"),
        ("{", "is not a JSON object with manage, namespace"),
        ('{"managed": true}', "is not a JSON object with manage, namespace"),
        ('{"manage": true, "images": {"gfd": "x"}}', "names no image for validator, dcgm, dcgm-exporter"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match="GPULEDGER_COMPONENTS") as refused:
        read_components(text)
    assert why in str(refused.value)
