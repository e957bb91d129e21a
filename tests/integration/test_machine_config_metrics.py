"""What is measured of MachineConfigPools, from the rows of the rollout on a real server."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, get_type_hints

import orjson
import pytest
from prometheus_client import REGISTRY

from gpuledger.compose.machine_config_metrics import measure_machine_configs
from gpuledger.domain.machineconfig.rows import CONFIG_NODE, CONFIG_POOL, CONFIG_POOL_STATUS
from gpuledger.domain.table import TableSpec
from support.projections import execute, stop
from support.waiting import eventually

PREFIX = "gpuledger_machineconfigpool"
NOW = datetime(2026, 3, 1, tzinfo=UTC)
DEFAULTS: dict[Any, Any] = {str: "", int: 0, bool: False, datetime: NOW}
DOCUMENTS = {"labels", "annotations", "definition", "conditions"}


def put(url: str, spec: TableSpec[Any], **given: Any) -> None:
    """Have a row; what is not given is empty."""
    row = {name: DEFAULTS.get(kind) for name, kind in get_type_hints(spec.row).items()}
    row |= {name: "{}" for name in row if name in DOCUMENTS} | given
    places = ", ".join(["%s"] * len(row))
    execute(url, f"INSERT INTO gpuledger_live.{spec.name} ({', '.join(row)}) VALUES ({places})", *row.values())


def pool(url: str, name: str, *conditions: str, paused: bool = False, **counts: int) -> None:
    listed = [{"type": one, "status": "True", "reason": "R", "message": ""} for one in conditions]
    listed += [{"type": "Draining", "status": "False", "reason": "R", "message": ""}]
    put(url, CONFIG_POOL, name=name, paused=paused)
    put(url, CONFIG_POOL_STATUS, pool=name, conditions=orjson.dumps(listed).decode(), **counts)


def node(url: str, name: str, of: str, desired: str | None = None, state: str | None = None) -> None:
    put(url, CONFIG_NODE, node=name, decided_pool=of, desired_revision=desired, agent_state=state, phase="Idle")


async def measured(pool_name: str, **expected: float | None) -> bool:
    found = {name: REGISTRY.get_sample_value(f"{PREFIX}_{name}", {"pool": pool_name}) for name in expected}
    return found == expected


def condition(pool_name: str, kind: str) -> float | None:
    return REGISTRY.get_sample_value(f"{PREFIX}_condition", {"pool": pool_name, "condition": kind})


@pytest.fixture
async def measuring(migrated_url: str) -> AsyncIterator[str]:
    task = asyncio.create_task(measure_machine_configs(migrated_url, interval_s=0.02))
    yield migrated_url
    await stop(task)


async def test_pools_are_measured_with_their_conditions(measuring: str) -> None:
    pool(
        measuring, "gpu", "Updating", "Degraded",
        machine_count=5, ready_count=3, updated_count=2, updating_count=1, degraded_count=1, cordoned_count=2,
        draining_count=1, pending_reboot_count=1, unavailable=2, max_unavailable=3,
    )  # fmt: skip
    pool(measuring, "cpu", "Ready", paused=True, machine_count=1, max_unavailable=1)
    expected = {"machines": 5, "ready": 3, "updated": 2, "updating": 1, "degraded": 1, "cordoned": 2, "draining": 1}
    more = {"pending_reboot": 1, "unavailable": 2, "max_unavailable": 3, "paused": 0}
    await eventually(partial(measured, "gpu", **expected, **more))
    await eventually(partial(measured, "cpu", machines=1, paused=1, degraded=0))
    found = {kind: condition("gpu", kind) for kind in ("Updating", "Degraded", "Draining", "Ready")}
    assert found == {"Updating": 1, "Degraded": 1, "Draining": 0, "Ready": None}
    assert condition("cpu", "Ready") == 1


async def test_nodes_whose_agent_never_spoke_are_silent(measuring: str) -> None:
    pool(measuring, "gpu")
    pool(measuring, "cpu")
    node(measuring, "w1", "gpu", desired="rendered-gpu-0123456789")
    node(measuring, "w2", "gpu", desired="rendered-gpu-0123456789", state="done")
    node(measuring, "w3", "gpu")
    node(measuring, "w4", "cpu", desired="rendered-cpu-0123456789", state="error")
    await eventually(partial(measured, "gpu", silent=1))
    await eventually(partial(measured, "cpu", silent=0))


async def test_a_pool_that_is_gone_is_measured_no_more(measuring: str) -> None:
    pool(measuring, "gpu", "Ready", machine_count=1)
    await eventually(partial(measured, "gpu", machines=1))
    execute(measuring, f"DELETE FROM gpuledger_live.{CONFIG_POOL.name}")
    await eventually(partial(measured, "gpu", machines=None, silent=None))
    assert condition("gpu", "Ready") is None


async def test_nothing_is_served_that_cannot_be_measured(measuring: str) -> None:
    pool(measuring, "gpu", machine_count=1)
    await eventually(partial(measured, "gpu", machines=1))
    table = f"gpuledger_live.{CONFIG_NODE.name}"
    execute(measuring, f"ALTER TABLE {table} RENAME TO elsewhere")
    await eventually(partial(measured, "gpu", machines=None))
    execute(measuring, f"ALTER TABLE gpuledger_live.elsewhere RENAME TO {CONFIG_NODE.name}")
    await eventually(partial(measured, "gpu", machines=1))
