"""How simulated nodes are prepared: components in their order, then heartbeats, from where a node stands."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.labels import COMPONENT_BY_APP, LABEL_APP
from gpuledger.edge.watchers.resources.components import merge, read
from gpuledger.events.settings import HEARTBEATS_MAX
from gpuledger.tools.simulation.allocation import Start
from gpuledger.tools.simulation.components import COMPONENTS, EXPORTER, VALIDATOR, pod, pod_name, ready, ready_apps
from gpuledger.tools.simulation.decide import CardFailed, CardReturned, FleetPlan
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.preparation import (
    ComponentReady,
    ComponentsStarted,
    HeartBeat,
    NodeProgress,
    Preparation,
    PreparationHappening,
)
from gpuledger.tools.simulation.schedule import Schedule
from gpuledger.tools.simulation.workload import Rates
from support.simulating import happenings, new_fleet

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
APPS = [component.app for component in COMPONENTS]
ALL_READY = frozenset(APPS)
PERIOD_S = 15.0


def happened(nodes: dict[str, NodeProgress], to_s: float = 1e6) -> list[PreparationHappening]:
    schedule: Schedule[PreparationHappening] = Schedule()
    Preparation(schedule, PERIOD_S).begin(nodes)
    return schedule.advance(to_s, 10_000)


def test_components_come_up_in_their_order_and_then_heartbeats_begin() -> None:
    seen = happened({"w1": NodeProgress()})
    assert isinstance(seen[0], ComponentsStarted)
    ready_ = [one.component.app for one in seen[1:6] if isinstance(one, ComponentReady)]
    assert ready_ == APPS
    beats = [one.at_s for one in seen[6:] if isinstance(one, HeartBeat)]
    assert beats == [EXPORTER.ready_after_s + PERIOD_S * number for number in range(1, HEARTBEATS_MAX + 1)]
    assert len(seen) == 6 + HEARTBEATS_MAX, "and then nothing is reported"


@given(st.frozensets(st.sampled_from(APPS)), st.integers(0, HEARTBEATS_MAX + 5))
def test_a_node_goes_on_from_where_it_stands(apps: frozenset[str], heartbeats: int) -> None:
    seen = happened({"w1": NodeProgress(apps, heartbeats)})
    ready_ = {one.component.app for one in seen if isinstance(one, ComponentReady)}
    assert ready_ == ALL_READY - apps
    assert sum(isinstance(one, ComponentsStarted) for one in seen) == (apps != ALL_READY)
    missing = max(0, HEARTBEATS_MAX - heartbeats) if EXPORTER.app in apps else HEARTBEATS_MAX
    assert sum(isinstance(one, HeartBeat) for one in seen) == missing


@pytest.mark.parametrize("after", [0, 1, HEARTBEATS_MAX - 1, HEARTBEATS_MAX])
def test_counting_anew_reports_as_many_heartbeats_from_then_on(after: int) -> None:
    schedule: Schedule[PreparationHappening] = Schedule()
    preparation = Preparation(schedule, PERIOD_S)
    preparation.begin({"w1": NodeProgress(ALL_READY)})
    assert len(schedule.advance(after * PERIOD_S, 100)) == after
    preparation.restart_heartbeats("w1")
    beats = schedule.advance(1e6, 100)
    assert len(beats) == HEARTBEATS_MAX
    apart = [later.at_s - earlier.at_s for earlier, later in pairwise(beats)]
    assert set(apart) == {PERIOD_S}


def test_no_heartbeats_before_the_exporter_is_ready() -> None:
    schedule: Schedule[PreparationHappening] = Schedule()
    preparation = Preparation(schedule, PERIOD_S)
    preparation.begin({"w1": NodeProgress()})
    preparation.restart_heartbeats("w1")
    seen = schedule.advance(EXPORTER.ready_after_s, 100)
    assert not any(isinstance(one, HeartBeat) for one in seen)


def plan_of(start: Start | None = None) -> FleetPlan:
    fleet = Fleet(FleetSpec(4, 4), 1)
    rates = Rates(failures_per_1000_node_days=200_000)
    return FleetPlan(fleet, Random(1), rates, start or new_fleet(fleet))


def test_preparing_the_nodes_changes_nothing_else() -> None:
    """What else happens follows from the seed as it did; nobody waits for the components."""
    fleet = Fleet(FleetSpec(4, 4), 1)
    prepared, bare = plan_of(), plan_of(replace(new_fleet(fleet), prepared={}))
    others = [
        one
        for one in prepared.advance(86_400, 100_000)
        if not isinstance(one, ComponentsStarted | ComponentReady | HeartBeat)
    ]
    assert others == bare.advance(86_400, 100_000)
    assert len(others) > 500


def test_a_card_that_fails_or_comes_back_has_heartbeats_counted_anew() -> None:
    plan = plan_of()
    left: Counter[str] = Counter()
    due_s: dict[str, float] = {}
    changed = silent = 0
    for _, one in zip(range(20_000), happenings(plan), strict=False):
        assert all(one.at_s <= due_s[node] for node, beats in left.items() if beats), "a heartbeat that is not reported"
        node = ""
        if isinstance(one, ComponentReady) and one.component is EXPORTER:
            node, left[one.node] = one.node, HEARTBEATS_MAX
        elif isinstance(one, HeartBeat):
            assert left[one.node] > 0, "a heartbeat that nobody counts"
            node, left[one.node] = one.node, left[one.node] - 1
            silent += left[one.node] == 0
        elif (isinstance(one, CardFailed) and one.out_of_service) or isinstance(one, CardReturned):
            changed += 1
            if one.slot_id.node in due_s:
                node = "" if left[one.slot_id.node] else one.slot_id.node
                left[one.slot_id.node] = HEARTBEATS_MAX
        if node:
            due_s[node] = one.at_s + PERIOD_S
    assert changed > 10
    assert silent > 10


def test_a_pod_is_of_its_component_and_node() -> None:
    made = pod(VALIDATOR, "w1")
    assert made["metadata"]["labels"][LABEL_APP] == "nvidia-operator-validator"
    assert made["metadata"]["namespace"] == NAMESPACE
    assert made["metadata"]["name"] == pod_name(VALIDATOR.app, "w1")
    assert made["spec"]["nodeName"] == "w1"
    steps = [one["name"] for one in made["spec"]["initContainers"]]
    assert steps == ["driver-validation", "toolkit-validation", "cuda-validation"]


def test_watchers_know_every_component_and_see_when_it_is_ready() -> None:
    looks_of: dict[str, list[tuple[bool, str | None]]] = {}
    for component in COMPONENTS:
        made = pod(component, "w1")
        for one in (made, made | {"status": ready(component, NOW)}):
            (observed,) = merge([read(one).content]).pods
            looks_of.setdefault(observed.component, []).append((observed.ready, observed.step))
    assert set(looks_of) == set(COMPONENT_BY_APP.values())
    assert all([is_ready for is_ready, _ in looks] == [False, True] for looks in looks_of.values())
    assert looks_of["validator"][0][1] == "driver-validation"


def test_what_is_ready_is_found_again() -> None:
    pods = [pod(component, node) for component in COMPONENTS for node in ("w1", "w2")]
    assert ready_apps(pods) == {}
    for one in pods:
        app = one["metadata"]["labels"][LABEL_APP]
        if one["spec"]["nodeName"] == "w1" and app != EXPORTER.app:
            one["status"] = ready(next(each for each in COMPONENTS if each.app == app), NOW)
    assert ready_apps(pods) == {"w1": ALL_READY - {EXPORTER.app}}
    (validator,) = (one for one in pods if one["metadata"]["name"] == pod_name(VALIDATOR.app, "w1"))
    assert [one["name"] for one in validator["status"]["initContainerStatuses"]] == list(VALIDATOR.init_containers)
