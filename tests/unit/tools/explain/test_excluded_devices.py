"""Why a device that matches a pool is not in it: all obstacles, the decided one first."""

from collections.abc import Callable

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.events.device import Hardware
from gpuledger.events.node import NodeLabelled
from gpuledger.events.pool import DeviceFilter, LabelSelector, PoolDefined
from gpuledger.events.settings import SettingsChanged
from gpuledger.tools.explain.excluded_devices import excluded_devices
from support.pools import A100, PoolsLog, described, marked, pool, prepared, refused, state

POOL = "team-a/a"
FREE = LabelSelector(labels={"fleet": "free"})
APPROVING = pool(requires_annotation=False, auto_approve=FREE)

Story = Callable[[PoolsLog], object]


def reasons(pools: PoolsLog, pool_id: str = POOL) -> dict[str, list[str]]:
    found = excluded_devices(pools.state, pools.state.pool.rows[pool_id])
    return {one.device: [obstacle.reason for obstacle in one.obstacles] for one in found}


def words(pools: PoolsLog, device: str) -> str:
    (one,) = (one for one in excluded_devices(pools.state, pools.state.pool.rows[POOL]) if one.device == device)
    return " ".join(obstacle.message for obstacle in one.obstacles)


TABLE: list[tuple[PoolDefined, Story, list[str]]] = [
    (pool(), lambda _: None, ["NotAskedFor"]),
    (pool(), lambda pools: pools.record("w1-0", described(ignored=True)), ["NotAskedFor", "IgnoredByLabel"]),
    (pool(), lambda pools: pools.record("w1-0", described(managed=False)), ["NotAskedFor", "NodeNotManaged"]),
    (pool(), lambda pools: pools.record("w1-0", described(missing=True)), ["NotAskedFor", "NotObserved"]),
    (pool(), lambda pools: pools.record("w1-0", state("Faulted")), ["NotAskedFor", "DeviceNotReady"]),
    (pool(), lambda pools: pools.record("w1", prepared(ready=False)), ["NotAskedFor", "NodeNotReadyForPooling"]),
    (pool(), lambda pools: pools.record("w1-0", marked("nobody")), ["AskedForAnotherPool"]),
    (pool(maintenance="enabled"), lambda pools: pools.record("w1-0", marked("a")), ["PoolTakesNoDevices"]),
    (pool(unit="MIG"), lambda pools: pools.record("w1-0", marked("a")), ["PoolTakesNoDevices"]),
    (APPROVING, lambda _: None, ["NotAskedFor"]),
    (
        APPROVING,
        lambda pools: (
            pools.record(MODULE_CONFIG, SettingsChanged(approval_mode="Manual")),
            pools.record("w1-0", marked(fleet="free")),
        ),
        ["NotAskedFor"],
    ),
]


@pytest.mark.parametrize(("defined", "story", "expected"), TABLE)
def test_obstacles(defined: PoolDefined, story: Story, expected: list[str]) -> None:
    pools = PoolsLog().begin("w1")
    pools.record(POOL, defined)
    story(pools)
    assert reasons(pools) == {"w1-0": expected}


def test_a_device_in_the_pool_is_not_excluded() -> None:
    pools = PoolsLog().begin("w1", devices=2)
    pools.record(POOL, pool())
    pools.assign("w1-0", POOL)
    assert reasons(pools) == {"w1-1": ["NotAskedFor"]}
    pools.record("w1-1", marked("a"))
    pools.record("w1-1", refused(POOL))
    assert reasons(pools) == {}


def test_a_device_of_another_pool_names_that_pool() -> None:
    pools = PoolsLog().begin("w1")
    pools.record(POOL, pool())
    pools.record("c", pool(uid="c"))
    pools.assign("w1-0", "c")
    assert reasons(pools) == {"w1-0": ["InAnotherPool", "AskedForAnotherPool"]}
    assert words(pools, "w1-0") == "It belongs to c (Assigned). Its annotations ask for 'c'."
    assert reasons(pools, "c") == {}


def test_a_full_node_is_an_obstacle() -> None:
    pools = PoolsLog().begin("w1", devices=2)
    pools.record(POOL, pool(devices_per_node_max=1))
    pools.assign("w1-0", POOL)
    pools.record("w1-1", marked("a"))
    assert reasons(pools) == {"w1-1": ["NodeLimitReached"]}
    assert words(pools, "w1-1") == "The pool takes no more than 1 devices of a node."


def test_only_matching_or_requested_devices_are_listed() -> None:
    pools = PoolsLog().begin("w1", "w2", devices=2)
    pools.record("w2", NodeLabelled(uid="u", labels={"zone": "b"}))
    pools.record("w2-1", described(Hardware(product="NVIDIA H200")))
    include = DeviceFilter(products=(A100.product or "",))
    pools.record(POOL, pool(include=include, node_selector=LabelSelector(labels={"zone": "b"})))
    assert reasons(pools) == {"w2-0": ["NotAskedFor"]}
    pools.record("w1-0", marked("a"))
    assert reasons(pools) == {"w1-0": ["AnnotationMismatch"], "w2-0": ["NotAskedFor"]}
    assert words(pools, "w1-0") == "The pool's nodeSelector does not select the node w1."
