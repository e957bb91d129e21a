"""Which nodes the chart runs agents on, and where the services label nodes for the components."""

from typing import Any

import pytest

from gpuledger.api.labels import LABEL_PRESENT
from gpuledger.runtime.settings import COMPONENTS, ComponentSettings, read_components
from support.chart import WITH_URLS, Manifests, Object, manifests, needs_helm, render, template

pytestmark = needs_helm


def values(**agent: Any) -> dict[str, Any]:
    return {**WITH_URLS, "agent": {"enabled": True, "nats": {"url": "tls://nats.example:4222"}, **agent}}


LABELLED = {"key": LABEL_PRESENT, "operator": "Exists"}
LINUX = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
WITH_NFD = ("--api-versions", "nfd.k8s-sigs.io/v1alpha1")


@pytest.mark.parametrize(
    ("nodes", "options", "expected"),
    [
        (None, (), LINUX),
        (None, WITH_NFD, LABELLED),
        ("auto", WITH_NFD, LABELLED),
        ("all", WITH_NFD, LINUX),
        ("labelled", (), LABELLED),
    ],
)
def test_it_runs_on_every_node_that_has_gpus_or_may_have_any(
    nodes: str | None, options: tuple[str, ...], expected: Object
) -> None:
    result = template(values(**({} if nodes is None else {"nodes": nodes})), "lab", *options)
    assert result.code == 0, result.err
    made = manifests(result.out)
    pod = made.one("DaemonSet", "gpu-node-agent")["spec"]["template"]["spec"]
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"] == [{"matchExpressions": [expected]}]
    assert components_of(made).label_nodes == (expected is LINUX)


def components_of(made: Manifests) -> ComponentSettings:
    env = made.one("Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    return read_components(next(one["value"] for one in env if one["name"] == COMPONENTS))


def test_nodes_are_labelled_for_components_of_ours_alone() -> None:
    for others in (
        values(nodes="all") | {"components": {"manage": False}},
        {**WITH_URLS, "agent": {"enabled": False, "nodes": "all"}},
    ):
        made = render(others)
        assert not components_of(made).label_nodes
