"""The module's settings among the chart's values: who gets them, which are refused, and what high availability is."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from gpuledger.api.labels import ANNOTATION_REPLICAS
from gpuledger.edge.statuswriter.desired.replicas import Availability, scaled_to
from gpuledger.edge.watchers.resources import moduleconfig
from gpuledger.runtime.settings import DEPLOYMENTS, MODULE_SETTINGS, OwnDeployment, SettingsError, read_settings
from support.chart import CHART, NAME, NAMESPACE, WITH_SECRET, needs_helm, render
from support.kube_accounts import Permission
from support.rights import granted

pytestmark = needs_helm


def test_the_services_get_the_modules_settings_and_the_schema_is_the_services_own() -> None:
    given = {"bootstrap": {"validationTimeout": "10m"}, "deviceApproval": {"mode": "Manual"}}
    env = render({**WITH_SECRET, "settings": given}).one("Deployment")["spec"]["template"]["spec"]["containers"][0][
        "env"
    ]
    settings = read_settings(
        {one["name"]: one["value"] for one in env if one["name"] in (MODULE_SETTINGS, DEPLOYMENTS)}
    )
    assert settings.deployments == (OwnDeployment(NAMESPACE, NAME),)
    assert settings.module == given
    assert moduleconfig.understand(settings.module).problems == ()
    shipped = orjson.loads((CHART / "values.schema.json").read_bytes())["properties"]["settings"]
    assert shipped == moduleconfig.schema()


@pytest.mark.parametrize(
    ("settings", "replicas", "pods", "spread"),
    [
        ({}, 2, 2, "ScheduleAnyway"),
        ({"highAvailability": True}, 1, 2, "DoNotSchedule"),
        ({"highAvailability": True}, 3, 3, "DoNotSchedule"),
        ({"highAvailability": True}, 0, 0, "DoNotSchedule"),
        ({"highAvailability": False}, 2, 1, "ScheduleAnyway"),
    ],
)
def test_high_availability_is_two_pods_on_different_nodes(
    settings: dict[str, Any], replicas: int, pods: int, spread: str
) -> None:
    made = render({**WITH_SECRET, "replicas": replicas, "settings": settings})
    spec = made.one("Deployment")["spec"]
    nodes, zones = spec["template"]["spec"]["topologySpreadConstraints"]
    assert (spec["replicas"], nodes["whenUnsatisfiable"]) == (pods, spread)
    assert (nodes["topologyKey"], zones["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert made.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("available", [None, True, False])
@pytest.mark.parametrize("replicas", [0, 1, 2, 3])
def test_the_services_scale_each_deployment_as_the_chart_would(available: bool | None, replicas: int) -> None:
    """Whether people set it in the chart or in a ModuleConfig, there are as many pods."""
    settings = {} if available is None else {"highAvailability": available}
    processes = {"apart": {"only": ["devices"], "replicas": replicas}}
    values = {**WITH_SECRET, "replicas": max(replicas, 1), "processes": processes}
    made, given = render({**values, "settings": settings}), render(values)
    for name, number in ((NAME, max(replicas, 1)), (f"{NAME}-apart", replicas)):
        before = given.one("Deployment", name)
        assert before["spec"]["replicas"] == number
        assert before["metadata"]["annotations"][ANNOTATION_REPLICAS] == str(number)
        state = Availability()
        state.observe(datetime(2026, 1, 1, tzinfo=UTC), available)
        scaled = scaled_to(state.latest, given=number, present=number)
        assert made.one("Deployment", name)["spec"]["replicas"] == (number if scaled is None else scaled)
        (_, *spread) = made.one("Deployment", name)["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert spread


def test_the_services_may_scale_their_own_deployments_and_nothing_more() -> None:
    made = render({**WITH_SECRET, "processes": {"apart": {"only": ["devices"]}}})
    names = {NAME, f"{NAME}-apart"}
    assert granted(made, f"{NAME}-scaling") == {
        Permission(verb, "apps", resource, name, NAMESPACE)
        for verb, resource in (("get", "deployments"), ("patch", "deployments/scale"))
        for name in names
    }
    (container,) = made.one("Deployment")["spec"]["template"]["spec"]["containers"]
    (env,) = (one["value"] for one in container["env"] if one["name"] == DEPLOYMENTS)
    assert {one.name for one in read_settings({DEPLOYMENTS: env}).deployments} == names


@pytest.mark.parametrize("text", ["gpuledger", "/x", "a/", "a/b/c", "a/b,c"])
def test_a_deployment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="NAMESPACE/NAME"):
        read_settings({DEPLOYMENTS: text})
