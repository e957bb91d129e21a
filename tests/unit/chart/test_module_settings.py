"""The module's settings among the chart's values: who gets them, which are refused, and what high availability is."""

from typing import Any

import orjson
import pytest

from gpuledger.edge.watchers.resources import moduleconfig
from gpuledger.runtime.settings import HELM_RELEASE, MODULE_SETTINGS, read_settings
from support.chart import CHART, NAME, NAMESPACE, RELEASE, WITH_SECRET, needs_helm, render

pytestmark = needs_helm


def test_the_services_get_the_modules_settings_and_the_schema_is_the_services_own() -> None:
    given = {"bootstrap": {"validationTimeout": "10m"}, "deviceApproval": {"mode": "Manual"}}
    env = render({**WITH_SECRET, "settings": given}).one("Deployment")["spec"]["template"]["spec"]["containers"][0][
        "env"
    ]
    settings = read_settings(
        {one["name"]: one["value"] for one in env if one["name"] in (MODULE_SETTINGS, HELM_RELEASE)}
    )
    assert settings.release == f"{NAMESPACE}/{RELEASE}"
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
    assert (NAME in made.names("PodDisruptionBudget")) is (pods > 1)
