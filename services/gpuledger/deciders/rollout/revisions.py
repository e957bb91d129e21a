"""Decides what a pool's nodes are to have: renders its configuration, and withdraws what nobody needs any more. Pure.

What cannot be rendered leaves the target as it is, and the pool says why.
"""

from collections.abc import Container, Iterator

from gpuledger.domain.machineconfig.rendering import RenderProblem, render_selected
from gpuledger.domain.machineconfig.retention import surplus
from gpuledger.domain.machineconfig.rows import ConfigPoolRow
from gpuledger.domain.machineconfig.selection import read_config, read_selection
from gpuledger.domain.machineconfig.state import Rollout
from gpuledger.events.machine_config import MachineConfigRendered, MachineConfigRenderedWithdrawn


def rendering(state: Rollout, row: ConfigPoolRow) -> MachineConfigRendered | RenderProblem | None:
    """What comes of rendering a pool now; None where that is nothing new.

    A pool for which nothing was ever rendered waits for its first MachineConfig: nothing to apply drains no node.
    """
    definition, newest = state.definition(row.name), state.newest(row.name)
    if definition is not None and definition.problems:
        return RenderProblem(None, "; ".join(definition.problems))
    selection = read_selection(row.definition)
    configs = [(one.name, read_config(one.definition)) for one in state.config.rows.values()]
    selected = [(name, one) for name, one in configs if selection.has_config(name, one.labels)]
    if not selected and newest is None:
        return None
    taken = {one.name: one.config_hash for one in state.rendered.rows.values()}
    found = render_selected(row.name, selected, taken)
    is_same = isinstance(found, MachineConfigRendered) and newest is not None and newest.name == found.name
    return None if is_same else found


def render(state: Rollout, row: ConfigPoolRow) -> Iterator[MachineConfigRendered]:
    """Render a pool: its wait is over, whatever comes of it."""
    found = rendering(state, row)
    problem = str(found) if isinstance(found, RenderProblem) else ""
    state.pool.put(row._replace(waits_since=None, problem=problem))
    if isinstance(found, MachineConfigRendered):
        yield found


def withdrawn(state: Rollout, pool: str) -> list[MachineConfigRenderedWithdrawn]:
    """The rendered configurations of a pool that nobody needs any more; all of a pool that is gone."""
    rows, definition = state.rendered.where("pool", pool), state.definition(pool)
    if definition is None:
        names = sorted(row.name for row in rows)
    else:
        names = surplus(rows, definition.history_limit, _InUse(state, pool))
    return [MachineConfigRenderedWithdrawn(name=name) for name in names]


class _InUse(Container[str]):
    """The rendered configurations that a pool rolls out, or that nodes have or are to have."""

    def __init__(self, state: Rollout, pool: str) -> None:
        self._state, self._target = state, state.target(pool)

    def __contains__(self, name: object) -> bool:
        return name == self._target or (isinstance(name, str) and self._state.uses(name))
