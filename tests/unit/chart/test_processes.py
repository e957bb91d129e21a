"""Services in Deployments of their own: each service runs somewhere, and each Deployment has its metrics."""

from typing import Any

import pytest

from gpuledger.compose.up import EDGE, SNAPSHOTS, services_named
from gpuledger.tools.queries.backend import all_projections
from support.chart import NAME, WITH_SECRET, Object, needs_helm, render, template

SERVICES = {*(one.name for one in all_projections()), EDGE, SNAPSHOTS}
SPLIT: dict[str, Any] = {
    **WITH_SECRET,
    "processes": {
        "decisions": {"only": ["pools", "inventory"], "replicas": 2, "resources": {"limits": {"memory": "4Gi"}}},
        "past": {"only": ["snapshots"]},
    },
}


def _args(deployment: Object) -> list[str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    args: list[str] = container["args"]
    return args


def _only(deployment: Object) -> frozenset[str]:
    return services_named(_args(deployment)[-1])


@needs_helm
def test_one_deployment_runs_everything_by_default() -> None:
    found = render(WITH_SECRET)
    assert found.names("Deployment") == {NAME}
    assert "--only" not in _args(found.one("Deployment"))


@needs_helm
def test_every_service_runs_once_and_edge_stays() -> None:
    found = render(SPLIT)
    main, decisions, past = (found.one("Deployment", f"{NAME}{suffix}") for suffix in ("", "-decisions", "-past"))
    assert _only(decisions) == {"pools", "inventory"}
    assert _only(past) == {"snapshots"}
    assert _only(main) == SERVICES - _only(decisions) - _only(past)
    assert [one["spec"]["replicas"] for one in (main, decisions, past)] == [2, 2, 1]
    (container,) = decisions["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"memory": "4Gi"}}


@needs_helm
def test_each_service_but_the_edge_can_have_a_deployment_of_its_own() -> None:
    alone = sorted(SERVICES - {EDGE})
    found = render({**WITH_SECRET, "processes": {f"p{at}": {"only": [name]} for at, name in enumerate(alone)}})
    assert _only(found.one("Deployment", NAME)) == {EDGE}
    assert [_only(found.one("Deployment", f"{NAME}-p{at}")) for at in range(len(alone))] == [{one} for one in alone]


@needs_helm
def test_webhooks_lead_to_the_edge_alone_and_metrics_are_those_of_all() -> None:
    found = render({**SPLIT, "serviceMonitor": {"enabled": True}})
    monitored = found.one("ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
    for suffix in ("-decisions", "-past"):
        labels = found.one("Deployment", f"{NAME}{suffix}")["spec"]["template"]["metadata"]["labels"].items()
        service = found.one("Service", f"{NAME}{suffix}")
        assert service["metadata"]["labels"].items() >= monitored
        assert labels >= service["spec"]["selector"].items()
        leading = [one for one in found.objects if one["kind"] == "Service" and one != service]
        assert not any(labels >= one["spec"]["selector"].items() for one in leading)


@needs_helm
def test_no_replicas_stop_all_work() -> None:
    found = render({**SPLIT, "replicas": 0})
    assert {one["spec"]["replicas"] for one in found.objects if one["kind"] == "Deployment"} == {0}


@needs_helm
@pytest.mark.parametrize(
    "process", [{"only": ["edge"]}, {"only": ["pods"]}, {"only": []}, {}, {"only": ["pools"], "replica": 1}]
)
def test_what_no_process_can_be_is_refused(process: Object) -> None:
    assert template({**WITH_SECRET, "processes": {"one": process}}).code != 0
