"""How much a check requests: never more than its pod has, and never so that a quota or a class turns it away."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.quantities import parse_quantity
from gpuledger.edge.preflight.configuration import Resources
from gpuledger.edge.preflight.devices import PodContainers
from gpuledger.edge.preflight.sizes import compute_resources

CONFIGURED = Resources(requests={"cpu": "100m", "memory": "128Mi"})


def container(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


@pytest.mark.parametrize(
    ("containers", "configured", "requests", "limits"),
    [
        (PodContainers((container(),)), CONFIGURED, {}, {}),
        (PodContainers((container({"cpu": "50m"}),)), CONFIGURED, {"cpu": "50m"}, {}),
        (PodContainers((container({"cpu": "60m"}), container({"cpu": "60m"}))), CONFIGURED, {"cpu": "100m"}, {}),
        (PodContainers((container(),), (container({"cpu": "1"}),)), CONFIGURED, {"cpu": "100m"}, {}),
        # A LimitRange may bound how far a limit exceeds its request, and demand a least request.
        (PodContainers((container({}, {"cpu": "2"}),)), CONFIGURED, {"cpu": "2"}, {"cpu": "2"}),
        (
            PodContainers((container({"cpu": "1"}, {"cpu": "2"}), container({"cpu": "20m"}, {"cpu": "500m"}))),
            CONFIGURED,
            {"cpu": "1"},
            {"cpu": "2"},
        ),
        (PodContainers((container({"cpu": "4"}), container({"cpu": "500m"}))), CONFIGURED, {"cpu": "500m"}, {}),
        (PodContainers((container({"cpu": "4"}), container())), CONFIGURED, {"cpu": "100m"}, {}),
        (PodContainers((container({"cpu": "4"}),)), Resources(requests={}), {"cpu": "4"}, {}),
        (PodContainers((container({"cpu": "4"}),)), Resources(limits={"cpu": "1"}), {"cpu": "1"}, {"cpu": "1"}),
        (PodContainers((container({}, {"cpu": "2"}), container())), CONFIGURED, {"cpu": "100m"}, {}),
        (
            PodContainers((container({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"}),)),
            CONFIGURED,
            {"cpu": "1", "memory": "1Gi"},
            {"cpu": "1", "memory": "1Gi"},
        ),
        (PodContainers((container(),)), Resources(limits={"cpu": "1"}), {"cpu": "0"}, {"cpu": "1"}),
        (PodContainers((container({"cpu": "nonsense"}),)), CONFIGURED, {}, {}),
    ],
)
def test_what_a_check_requests(
    containers: PodContainers, configured: Resources, requests: dict[str, str], limits: dict[str, str]
) -> None:
    assert compute_resources(configured, containers) == (requests, limits)


def test_a_limit_is_not_above_that_of_the_whole_pod() -> None:
    configured, whole = Resources(limits={"cpu": "4", "memory": "1Gi"}), {"limits": {"cpu": "2"}}
    assert compute_resources(configured, PodContainers((container(),)), whole)[1] == {"cpu": "2", "memory": "1Gi"}


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory"]), st.sampled_from(["0", "1m", "100m", "1", "64Mi", "2Gi", "1e3"])
)
CONTAINERS = st.lists(st.builds(container, AMOUNTS, AMOUNTS), max_size=3)


@given(st.lists(st.builds(container, AMOUNTS, AMOUNTS), min_size=1, max_size=3), CONTAINERS, AMOUNTS, AMOUNTS)
def test_a_check_never_makes_its_pod_larger(
    running: list[Any], initial: list[Any], requests: dict[str, str], limits: dict[str, str]
) -> None:
    configured = Resources(requests=requests, limits=limits)
    found, bounds = compute_resources(configured, PodContainers(tuple(running), tuple(initial)))

    def requested(one: Any, name: str) -> int:
        resources = one["resources"]
        return parse_quantity(resources["requests"].get(name, resources["limits"].get(name, "0"))).nanos

    for name in ("cpu", "memory"):
        effective = max(sum(requested(one, name) for one in running), *(requested(one, name) for one in initial), 0)
        # The API server takes a limit for the request where there is none.
        assert parse_quantity(found.get(name, bounds.get(name, "0"))).nanos <= effective
