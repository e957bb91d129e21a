"""What a pool would get and which nodes would change, by the rules of the service `rollout` before it decides. Pure.

The state is one that a tool has read for itself. Manifests are put into it in the place of those of the ledger, the
pool is rendered, and each node that waits then has its turn in the order and by the budget of the pool.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import orjson

from gpuledger.api.machine_config import ZONE_LABEL, RebootStrategy
from gpuledger.deciders.rollout.budget import max_unavailable
from gpuledger.deciders.rollout.counts import counts_of
from gpuledger.deciders.rollout.order import order_of
from gpuledger.deciders.rollout.plan import begun, view_of
from gpuledger.deciders.rollout.revisions import rendering
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.machineconfig.rendering import RenderProblem
from gpuledger.domain.machineconfig.rows import ConfigNodeRow, ConfigPoolRow, MachineConfigRow, RenderedConfigRow
from gpuledger.domain.machineconfig.state import DRAINING, IDLE, Rollout
from gpuledger.events.machine_config import MachineConfigPoolDefined, MachineConfigRendered
from gpuledger.events.payload import Payload
from gpuledger.tools.errors import RequestError
from gpuledger.tools.machineconfig.manifests import Manifests
from gpuledger.tools.machineconfig.tables import config_of, tables_of

HYPOTHETICAL_AT: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""When a manifest is defined that nobody has applied: later than all that is recorded."""


class NodeTurn(NamedTuple):
    """A node that would change: its place in the order from 1, and in which round, each of as many as may be at once.

    `why_not_drained` is empty where it is cordoned and drained first.
    """

    place: int
    round: int
    node: str
    zone: str | None
    current: str | None
    why_not_drained: str
    reboots: bool


class Preview(NamedTuple):
    """What a pool would get: `before` is what its nodes are to have now, `after` what they would be to have."""

    pool: str
    definition: MachineConfigPoolDefined
    before: MachineConfigRendered | None
    after: MachineConfigRendered
    turns: list[NodeTurn]
    nodes: int
    at_once: int
    unavailable: list[str]
    in_flight: list[str]
    overlapping: list[str]

    @property
    def is_new(self) -> bool:
        """Whether the pool would get something else than it has."""
        return self.before is None or self.before.config_hash != self.after.config_hash

    def notes(self) -> Iterator[str]:
        """What a reader has to know beside it."""
        definition = self.definition
        if definition.paused:
            yield "The pool is paused: nothing begins before it is resumed."
        if definition.pinned_revision is not None:
            how = f"`gpuledger config unpin {self.pool}`"
            yield f"The pool is pinned to {definition.pinned_revision}: this goes out after {how}."
        if self.in_flight and self.is_new:
            yield f"In flight already, and go on to this at once: {', '.join(self.in_flight)}."
        if self.overlapping:
            yield f"Nodes of other pools as well, on which nothing begins: {', '.join(self.overlapping)}."
        if self.unavailable and self.turns:
            yield (
                f"{len(self.unavailable)} of at most {self.at_once} nodes are unavailable already: "
                f"{', '.join(self.unavailable)}."
            )
        if self.after.reboot_required and definition.reboot_strategy == RebootStrategy.NEVER.value:
            yield "It requires a reboot, and the pool's strategy is Never: nodes stay reboot-pending."


def put_manifests(state: Rollout, manifests: Manifests) -> None:
    """Put manifests into a state in the place of what it has of the same names."""
    for name, config in manifests.configs.items():
        row = MachineConfigRow(name, config.uid, config.generation, config.priority, _text(config), HYPOTHETICAL_AT)
        state.config.put(row)
    for name, pool in manifests.pools.items():
        text = _text(_annotated(pool, state.definition(name)))
        state.put_pool(ConfigPoolRow(name, pool.uid, pool.generation, text, pool.paused, None, "", HYPOTHETICAL_AT))


def _annotated(pool: MachineConfigPoolDefined, before: MachineConfigPoolDefined | None) -> MachineConfigPoolDefined:
    """A pool of a manifest with the pin of the one in the cluster, whose annotation no manifest takes away."""
    if before is None or pool.pinned_revision is not None:
        return pool
    return pool.model_copy(update={"pinned_revision": before.pinned_revision})


def preview(state: Rollout, pool: str) -> Preview:
    """What a pool would get from what a state has, which is changed so that it does.

    Raises:
        RequestError: there is no such pool, or it cannot be rendered.
    """
    row, tables = tables_of(state).pool(pool), tables_of(state)
    target = tables.target(pool)
    had = tables.rendered.get(target or "")
    after = rendered_of(state, row)
    definition = state.definition(pool)
    assert definition is not None, "its row is there"
    _roll_out(state, row, definition, after)
    counts = counts_of(state, pool, state.target(pool))
    at_once = max_unavailable(definition.max_unavailable, counts.machines)
    members = [state.node.rows[node] for node in state.membership.members(pool)]
    return Preview(
        pool,
        definition,
        None if had is None else config_of(had),
        after,
        list(_turns(state, counts.waiting, at_once, definition, after)),
        counts.machines,
        at_once,
        sorted(counts.unavailable),
        [one.node for one in members if one.phase != IDLE and one.pool == pool],
        counts.overlapping,
    )


def rendered_of(state: Rollout, row: ConfigPoolRow) -> MachineConfigRendered:
    """What a pool renders to.

    Raises:
        RequestError: it cannot be rendered, or there is nothing that it selects.
    """
    found, newest = rendering(state, row), state.newest(row.name)
    if isinstance(found, RenderProblem):
        raise RequestError(
            f"MachineConfigPool {row.name!r} cannot be rendered: {found}", "Correct it, or give its manifest"
        )
    if found is not None:
        return found
    if newest is None:
        hint = "See what it selects with `gpuledger describe machineconfigpool`, and give MachineConfigs with -f"
        raise RequestError(
            f"MachineConfigPool {row.name!r} selects no MachineConfig, and has nothing to roll out", hint
        )
    return config_of(newest)


def _roll_out(
    state: Rollout, row: ConfigPoolRow, definition: MachineConfigPoolDefined, after: MachineConfigRendered
) -> None:
    """Have the pool roll out what was rendered, neither paused nor pinned, which only hold it up."""
    newest = state.newest(row.name)
    place = 1 if newest is None else newest.place + 1
    text = json_text(after.model_dump(mode="json"))
    state.rendered.put(
        RenderedConfigRow(after.name, row.name, after.revision, after.config_hash, text, place, HYPOTHETICAL_AT)
    )
    free = definition.model_copy(update={"paused": False, "pinned_revision": None})
    state.put_pool(row._replace(definition=_text(free), paused=False))


def _turns(
    state: Rollout,
    waiting: Sequence[ConfigNodeRow],
    at_once: int,
    definition: MachineConfigPoolDefined,
    after: MachineConfigRendered,
) -> Iterator[NodeTurn]:
    ordered = sorted(waiting, key=lambda row: order_of(state, row, prefers_idle=definition.prefers_idle))
    reboots = after.reboot_required and definition.reboot_strategy == RebootStrategy.IF_REQUIRED.value
    for place, row in enumerate(ordered):
        view = view_of(state, row.node, HYPOTHETICAL_AT)
        is_drained = begun(state, view).phase == DRAINING
        why = "" if is_drained else "the controller runs there" if view.is_controller else "a new node"
        zone = orjson.loads(row.labels).get(ZONE_LABEL)
        yield NodeTurn(place + 1, place // at_once + 1, row.node, zone, row.current_revision, why, reboots)


def _text(data: Payload) -> str:
    return json_text(data.model_dump(mode="json"))
