"""What a preview says before anything does, beside what the service then decides."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuledger.api.machine_config import ZONE_LABEL
from gpuledger.domain.machineconfig.rows import ConfigControllerRow
from gpuledger.domain.machineconfig.state import CONTROLLER, DRAINING, Rollout
from gpuledger.events.allocation import AllocatedDevices, AllocationObserved
from gpuledger.events.envelope import Decoded
from gpuledger.events.machine_config import MachineConfigDefined, NodeConfigChanged
from gpuledger.tools.errors import RequestError
from gpuledger.tools.explain.node_rollout import node_rollout, with_rollout
from gpuledger.tools.machineconfig.holders import HeldDevice
from gpuledger.tools.machineconfig.manifests import Manifests
from gpuledger.tools.machineconfig.preview import Preview, preview, put_manifests
from gpuledger.tools.machineconfig.preview_document import preview_document
from support.events import hour
from support.machine_configs import config_file, config_pool, machine_config
from support.rollout import RolloutLog, reloaded

POOL = "gpu"
BASE = machine_config(config_file("/etc/motd", "hello\n"), uid="base")
OTHER = machine_config(config_file("/etc/motd", "other\n"), uid="base")
REBOOTS = OTHER.model_copy(update={"reboot_required": True})


def settled(zones: Sequence[str], **pool: Any) -> RolloutLog:
    """A pool of nodes of these zones, when all of them have what they are to have."""
    log = RolloutLog(runs_on="elsewhere")
    for number, zone in enumerate(zones):
        log.node(f"n{number}", number, labels={ZONE_LABEL: zone} if zone else {}, created_s=number)
    log.record("base", BASE, 20)
    log.record(POOL, config_pool(debounce_s=0, max_unavailable="100%"), 21)
    for number in range(len(zones)):
        log.reports(f"n{number}", 30)
    log.record(POOL, config_pool(debounce_s=0, **pool), 40)
    return log


def holds(log: RolloutLog, node: str) -> None:
    """A pod holds a device of a node."""
    devices = (AllocatedDevices(resource="nvidia.com/gpu", devices=("GPU-1",)),)
    held = AllocationObserved(node=node, namespace="ml", pod="train", container="main", resources=devices)
    log.record(f"{node}/ml/train/main", held, 41, source=f"/nodes/{node}/agent")


def state_of(log: RolloutLog) -> Rollout:
    """The rows of a log, as a tool reads them."""
    state = reloaded(log.fold).state
    assert isinstance(state, Rollout)
    return state


def previewed(log: RolloutLog, config: MachineConfigDefined | None = OTHER, **pool: Any) -> Preview:
    """The preview with another MachineConfig, and perhaps another pool."""
    state = state_of(log)
    configs = {} if config is None else {"base": config}
    put_manifests(state, Manifests(configs, {POOL: config_pool(debounce_s=0, **pool)} if pool else {}))
    return preview(state, POOL)


def begun(decided: Sequence[Decoded]) -> list[str]:
    return [one.subject for one in decided if isinstance(one.data, NodeConfigChanged) and one.data.phase == DRAINING]


@settings(max_examples=40, deadline=None)
@given(
    zones=st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=6),
    at_once=st.sampled_from(["1", "2", "34%", "100%"]),
    prefers_idle=st.booleans(),
    busy=st.sets(st.integers(0, 5)),
)
def test_the_service_does_what_the_preview_says(
    zones: list[str], at_once: str, prefers_idle: bool, busy: set[int]
) -> None:
    log = settled(zones, max_unavailable=at_once, prefers_idle=prefers_idle)
    for number in busy & set(range(len(zones))):
        holds(log, f"n{number}")
    found = previewed(log)
    order, now = begun(log.record("base", OTHER, 50)), 60.0
    assert order == [one.node for one in found.turns if one.round == 1]
    for turn in found.turns:
        decided = [*log.drained(turn.node, now), *log.reports(turn.node, now + 1)]
        decided += log.isolated(turn.node, now + 2, unschedulable=False)
        order += begun(decided)
        now += 10
    assert order == [one.node for one in found.turns]
    assert log.state.target(POOL) == found.after.name
    assert not any(one.why_not_drained for one in found.turns)


def test_a_preview_changes_nothing_of_what_it_is_made_from() -> None:
    log = settled(["a"])
    previewed(log)
    again = previewed(log, None)
    assert (again.is_new, again.turns) == (False, [])


def test_new_nodes_and_the_one_of_the_controller_are_not_drained() -> None:
    log = settled(["a", "a"], paused=True)
    log.node("n9", 45)
    state = state_of(log)
    state.controller.put(ConfigControllerRow(CONTROLLER, "n1", "event"))
    put_manifests(state, Manifests({"base": OTHER}))
    turns = {one.node: one.why_not_drained for one in preview(state, POOL).turns}
    assert turns == {"n0": "", "n1": "the controller runs there", "n9": "a new node"}


def test_nodes_in_flight_go_on_to_it() -> None:
    log = settled(["a"])
    log.node("n9", 45)
    found = previewed(log)
    assert ([one.node for one in found.turns], found.in_flight) == (["n0"], ["n9"])
    assert "In flight already, and go on to this at once: n9." in found.notes()
    assert not any("In flight" in note for note in previewed(log, None).notes())


def test_a_pool_that_is_paused_or_pinned_is_shown_as_if_it_went_on() -> None:
    log = settled(["a", "b"], paused=True)
    found = previewed(log)
    assert [one.node for one in found.turns] == ["n0", "n1"]
    assert "paused" in next(found.notes())
    target = log.state.target(POOL)
    log.record(POOL, config_pool(debounce_s=0, pinned_revision=target), 50)
    found = previewed(log, max_unavailable="2")
    assert (len(found.turns), found.at_once) == (2, 2)
    assert f"pinned to {target}" in next(found.notes())


def test_reboots_follow_the_strategy() -> None:
    log = settled(["a"])
    assert [one.reboots for one in previewed(log, REBOOTS).turns] == [False]
    assert any("strategy is Never" in note for note in previewed(log, REBOOTS).notes())
    assert [one.reboots for one in previewed(log, REBOOTS, reboot_strategy="IfRequired").turns] == [True]


def test_what_cannot_be_rendered_is_an_error() -> None:
    log = settled(["a"])
    broken = machine_config(config_file("/etc/kubernetes/x"), uid="base")
    with pytest.raises(RequestError, match="cannot be rendered: MachineConfig base"):
        previewed(log, broken)
    with pytest.raises(RequestError, match="was not found"):
        preview(state_of(log), "nothing")
    state = state_of(log)
    put_manifests(state, Manifests({}, {"new": config_pool(config_selector=None)}))
    with pytest.raises(RequestError, match="selects no MachineConfig"):
        preview(state, "new")


def test_the_document_says_who_holds_what() -> None:
    log = settled(["a", "b"])
    held = {"n1": [HeldDevice("n1", "GPU-1", hour(0), ("ml/a",)), HeldDevice("n1", "GPU-2", hour(0), ("ml/a", "ml/b"))]}
    document = preview_document(previewed(log), held)
    assert document["answer"] == "2 nodes of 2 would change, 1 at a time; 1 node holds 2 devices"
    assert (document["rounds"], document["differs"]) == (2, True)
    assert document["nodes"][1]["pods"] == ["ml/a", "ml/b"]
    nothing = preview_document(previewed(log, None), {})
    assert (nothing["answer"], nothing["differs"]) == ("nothing would change", False)


def says(log: RolloutLog, node: str) -> str:
    found = node_rollout(state_of(log), node)
    assert found is not None
    return str(found["answer"])


def test_why_a_node_is_where_it_is() -> None:
    log = settled(["a", "b"])
    assert says(log, "n0") == f"it has {log.state.target(POOL)}, as pool gpu rolls it out"
    log.record("base", OTHER, 50)
    assert says(log, "n0").startswith("it drains for pool gpu since ")
    assert says(log, "n1") == (
        "it waits for its turn, 1 of 1 in the order of pool gpu: 1 of at most 1 nodes are unavailable, n0"
    )
    log.drained("n0", 60)
    log.reports("n0", 61, state="applying", current_revision=None)
    assert "its agent is applying" in says(log, "n0")
    log.reports("n0", 62, state="error", current_revision=None, error="no space left")
    assert "it failed to get to rendered-gpu-" in says(log, "n0")
    assert "no space left" in says(log, "n0")
    log.record(POOL, config_pool(debounce_s=0, paused=True), 70)
    assert says(log, "n1") == "it waits: pool gpu is paused"


def test_a_node_whose_turn_it_is_knows_that_there_is_a_place() -> None:
    state = state_of(settled(["a", "b"]))
    put_manifests(state, Manifests({"base": OTHER}))
    preview(state, POOL)
    found = node_rollout(state, "n1")
    assert found is not None
    assert found["answer"] == "it waits for its turn, 2 of 2 in the order of pool gpu; the budget has a place for it"


def test_a_node_of_two_pools_and_one_of_none() -> None:
    log = settled(["a"])
    log.record("other", config_pool(debounce_s=0, uid="o"), 50)
    assert "it belongs to 2 pools, gpu, other, so that nothing begins on it" in says(log, "n0")
    alone = RolloutLog()
    alone.node("n0", 1)
    assert node_rollout(state_of(alone), "n0") is None
    assert with_rollout({"answer": "a"}, None) == {"answer": "a", "rollout": None}
    assert with_rollout({"answer": "a"}, {"answer": "b"})["answer"] == "a; b"
