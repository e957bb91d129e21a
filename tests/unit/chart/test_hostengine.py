"""The way of pods with checks to the DCGM host engine of their node, as helm renders it."""

from typing import Any

import pytest

from gpuledger.api.preflight import LABEL_PREFLIGHT
from gpuledger.edge.statuswriter.desired.components import HOSTENGINE
from gpuledger.runtime.settings import COMPONENTS, ComponentSettings, read_components
from support.chart import IMAGE, Manifests, needs_helm, render, template

pytestmark = needs_helm

SHARED: dict[str, Any] = {**IMAGE, "preflight": {"dcgm": {"hostengine": {"enabled": True}}, "namespaces": ["a", "b"]}}


def components_of(made: Manifests) -> ComponentSettings:
    (container,) = made.one("Deployment")["spec"]["template"]["spec"]["containers"]
    return read_components(next(one["value"] for one in container["env"] if one["name"] == COMPONENTS))


def test_pods_cannot_ask_it_by_default() -> None:
    made = render(IMAGE)
    assert "nvidia-dcgm" not in made.names("Service") | made.names("NetworkPolicy")
    assert not components_of(made).shared_hostengine


def test_a_pod_reaches_that_of_its_own_node_only() -> None:
    made = render(SHARED)
    service = made.one("Service", "nvidia-dcgm")["spec"]
    assert service["internalTrafficPolicy"] == "Local"
    assert (service["selector"], [one["port"] for one in service["ports"]]) == ({"app": "nvidia-dcgm"}, [5555])
    assert HOSTENGINE == "nvidia-dcgm:5555"
    assert components_of(made).shared_hostengine


def test_only_pods_with_checks_in_their_namespaces_are_let_in() -> None:
    policy = render(SHARED).one("NetworkPolicy", "nvidia-dcgm")["spec"]
    assert policy["podSelector"] == {"matchLabels": {"app": "nvidia-dcgm"}}
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    assert peer["podSelector"]["matchLabels"] == {LABEL_PREFLIGHT: "true"}
    assert peer["namespaceSelector"]["matchExpressions"] == [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    ]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"components": {"manage": False}}, "NVIDIA supports one on a node"),
        ({"preflight": {"namespaces": [], "dcgm": {"hostengine": {"enabled": True}}}}, "needs preflight.namespaces"),
    ],
    ids=["somebody else runs the components", "no namespaces"],
)
def test_what_cannot_work_is_refused(values: dict[str, Any], reason: str) -> None:
    result = template({**SHARED, **values})
    assert result.code != 0
    assert reason in result.err
