"""Folds MachineConfigs and MachineConfigPools into rows, and notes when an input of a rendering has changed. Pure.

The latest fact about an object by event time is in force. One that is gone leaves nothing behind to compare times with:
a watcher never records an earlier time of one object than before.
"""

from collections.abc import Mapping
from datetime import datetime
from sys import intern

from gpuledger.domain.fact import Fact, Handlers, counted_as_recorded, is_late
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.machineconfig.rows import ConfigPoolRow, MachineConfigRow
from gpuledger.domain.machineconfig.selection import read_config, read_pool, read_selection
from gpuledger.domain.machineconfig.state import Rollout
from gpuledger.events.machine_config import (
    MachineConfigDefined,
    MachineConfigGone,
    MachineConfigPoolDefined,
    MachineConfigPoolGone,
)
from gpuledger.events.payload import Payload


def _config_defined(state: Rollout, fact: Fact, data: MachineConfigDefined) -> None:
    name, time = intern(fact.event.subject), fact.event.time
    before = state.config.get(name)
    if before is not None and is_late(before.changed_at, time):
        return
    row = MachineConfigRow(name, data.uid, data.generation, data.priority, _text(data), time)
    state.config.put(row)
    _changed(state, fact, before, row)


def _config_gone(state: Rollout, fact: Fact, data: MachineConfigGone) -> None:
    before = state.config.get(fact.event.subject)
    if before is None or is_late(before.changed_at, fact.event.time) or _is_another(data.uid, before.uid):
        return
    state.config.delete(before.name)
    _changed(state, fact, before, None)


def _changed(state: Rollout, fact: Fact, before: MachineConfigRow | None, after: MachineConfigRow | None) -> None:
    """The pools that selected a MachineConfig, or select it now, wait to be rendered."""
    versions = [(row.name, read_config(row.definition).labels) for row in (before, after) if row is not None]
    if before is not None and after is not None and before.definition == after.definition:
        return
    pools = [row.name for row in state.pool.rows.values() if any(_selects(row, *one) for one in versions)]
    state.wait_to_render(pools, _since(fact))


def _selects(pool: ConfigPoolRow, name: str, labels: Mapping[str, str]) -> bool:
    return read_selection(pool.definition).has_config(name, labels)


def _pool_defined(state: Rollout, fact: Fact, data: MachineConfigPoolDefined) -> None:
    name, time = intern(fact.event.subject), fact.event.time
    before, text = state.pool.get(name), _text(data)
    if before is not None and is_late(before.changed_at, time):
        return
    is_input = before is None or before.uid != data.uid or _rendering_of(before.definition) != _rendering_of(text)
    waits_since = _since(fact) if is_input or before is None else before.waits_since
    problem = "" if before is None else before.problem
    state.put_pool(ConfigPoolRow(name, data.uid, data.generation, text, data.paused, waits_since, problem, time))


def _rendering_of(definition: str) -> tuple[object, ...]:
    """What of a pool its rendering depends on."""
    data = read_pool(definition)
    return data.config_selector, data.problems


def _pool_gone(state: Rollout, fact: Fact, data: MachineConfigPoolGone) -> None:
    before = state.pool.get(fact.event.subject)
    if before is None or is_late(before.changed_at, fact.event.time) or _is_another(data.uid, before.uid):
        return
    state.delete_pool(before.name)


def _is_another(uid: str | None, held: str) -> bool:
    return uid is not None and uid != held


def _since(fact: Fact) -> datetime:
    return counted_as_recorded(fact.event, fact.recorded_ns)


def _text(data: Payload) -> str:
    return json_text(data.model_dump(mode="json"))


DEFINITION_HANDLERS: Handlers = {
    MachineConfigDefined: _config_defined,
    MachineConfigGone: _config_gone,
    MachineConfigPoolDefined: _pool_defined,
    MachineConfigPoolGone: _pool_gone,
}
