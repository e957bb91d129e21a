"""Answers `gpuledger what-if rollout`: what updating a pool's nodes would disturb, and how long it would take.

The pool's own order is compared with the order by zones and with that of idle nodes first. Nothing is written. Lengths
of drains and applications are those that this ledger's rollouts had, else assumptions, which the notes say.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.machineconfig.state import Rollout
from gpuledger.readmodels.projections import UpdatesProjection
from gpuledger.tools.machineconfig.holders import HeldDevice, allocation_lengths, held_devices
from gpuledger.tools.machineconfig.manifests import Manifests
from gpuledger.tools.machineconfig.preview import Preview, preview, put_manifests
from gpuledger.tools.machineconfig.reading import current_state
from gpuledger.tools.machineconfig.tables import tables_of
from gpuledger.tools.queries.backend import Backend, bring_current, read
from gpuledger.tools.whatif.rollout_estimate import (
    APPLY_ASSUMED_S,
    DRAIN_ASSUMED_S,
    REBOOT_ASSUMED_S,
    Estimate,
    PastLengths,
    StepLengths,
    estimate,
    steps_of,
)

Document = dict[str, Any]

BY_ZONE: Final = "by zone"
IDLE_FIRST: Final = "idle first"

_MEASURED: Final = """
    SELECT
        percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(EPOCH FROM applying_at - begun_at)) FILTER (WHERE drained),
        count(*) FILTER (WHERE drained),
        percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(EPOCH FROM ended_at - applying_at)),
        count(*)
    FROM gpuledger_live.machine_config_update WHERE outcome = 'Updated'
"""


class Assumed(NamedTuple):
    """What the answer assumes of the pool, beside its manifest."""

    max_unavailable: str | None = None
    prefers_idle: bool = False


class Measured(NamedTuple):
    """The median drain and application of past updates in seconds (None: there were none), and of how many."""

    drain_s: float | None
    drains: int
    apply_s: float | None
    applications: int


class Orders(NamedTuple):
    """The preview of a pool in either order, and whether the pool itself prefers idle nodes."""

    by_zone: Preview
    idle_first: Preview
    prefers_idle: bool


async def what_if_rollout(
    backend: Backend, pool: str, manifests: Manifests, assumed: Assumed, now: datetime
) -> Document:
    """The answer as a document.

    Raises:
        RequestError: there is no such pool, or it cannot be rendered.
    """
    states = [await current_state(backend), await current_state(backend)]
    own = [_assuming(state, pool, manifests, assumed, idle) for state, idle in zip(states, (False, True), strict=True)]
    orders = Orders(preview(states[0], pool), preview(states[1], pool), own[0] or assumed.prefers_idle)
    held = await held_devices(backend, [one.node for one in orders.by_zone.turns])
    return answer_of(orders, held, await _measured(backend), PastLengths(await allocation_lengths(backend)), now)


def _assuming(state: Rollout, pool: str, manifests: Manifests, assumed: Assumed, prefers_idle: bool) -> bool:
    """Put what is assumed into a state; returns whether the pool prefers idle nodes by itself."""
    put_manifests(state, manifests)
    definition = state.definition(tables_of(state).pool(pool).name)
    assert definition is not None, "its row is there"
    changes: dict[str, object] = {"prefers_idle": prefers_idle}
    if assumed.max_unavailable is not None:
        changes["max_unavailable"] = assumed.max_unavailable
    put_manifests(state, Manifests({}, {pool: definition.model_copy(update=changes)}))
    return definition.prefers_idle


async def _measured(backend: Backend) -> Measured:
    await bring_current(backend, [UpdatesProjection()])

    async def ask(connection: AsyncConnection) -> Measured:
        row = await (await connection.execute(_MEASURED.encode())).fetchone()
        assert row is not None, "it counts"
        return Measured(row[0] and float(row[0]), row[1], row[2] and float(row[2]), row[3])

    return await read(backend, ask, application_name="gpuledger what-if")


def answer_of(
    orders: Orders, held: Mapping[str, Sequence[HeldDevice]], measured: Measured, past: PastLengths, now: datetime
) -> Document:
    """The document of the answer."""
    first, lengths = orders.by_zone, _lengths(orders.by_zone, measured)
    since = {node: [one.since for one in devices] for node, devices in held.items()}

    def estimated(found: Preview) -> Estimate:
        steps = steps_of([(turn.node, not turn.why_not_drained) for turn in found.turns], since)
        return estimate(steps, found.at_once, lengths, past, now)

    zone, idle = estimated(orders.by_zone), estimated(orders.idle_first)
    return {
        "pool": first.pool,
        "would": first.after.name,
        "nodes": len(first.turns),
        "machines": first.nodes,
        "atOnce": first.at_once,
        "devicesHeld": sum(map(len, held.values())),
        "busyNodes": len(held),
        "medianAllocationS": past.median_s,
        "lengths": lengths._asdict(),
        "orders": [_row(BY_ZONE, zone), _row(IDLE_FIRST, idle)],
        "busy": [_busy(node, devices, past, now) for node, devices in sorted(held.items())],
        "assumptions": list(_assumptions(first, measured, past)),
        "notes": list(first.notes()),
        "answer": _answer(first, zone, idle, idle if orders.prefers_idle else zone),
    }


def _lengths(found: Preview, measured: Measured) -> StepLengths:
    reboots = any(one.reboots for one in found.turns)
    return StepLengths(
        DRAIN_ASSUMED_S if measured.drain_s is None else measured.drain_s,
        APPLY_ASSUMED_S if measured.apply_s is None else measured.apply_s,
        REBOOT_ASSUMED_S if reboots else 0.0,
    )


def _row(order: str, found: Estimate) -> Document:
    return {
        "order": order,
        "hours": round(found.took_s / 3600, 2),
        "nodeHours": round(found.node_hours, 2),
        "busyNodes": round(found.busy_nodes, 1),
        "devices": round(found.devices, 1),
        "interruptedGpuHours": round(found.interrupted_gpu_h, 2),
        "disturbedGpuHours": round(found.disturbed_gpu_h, 2),
    }


def _busy(node: str, devices: Sequence[HeldDevice], past: PastLengths, now: datetime) -> Document:
    oldest = min(one.since for one in devices)
    age_s = max(0.0, (now - oldest).total_seconds())
    return {
        "node": node,
        "devices": len(devices),
        "since": oldest,
        "pods": sorted({pod for one in devices for pod in one.pods}),
        "staysAnHour": round(past.stays(age_s, 3600), 2),
    }


def _assumptions(found: Preview, measured: Measured, past: PastLengths) -> Iterator[str]:
    if measured.drain_s is None:
        yield f"A drain takes {DRAIN_ASSUMED_S:.0f} s: this ledger has measured none."
    else:
        yield f"A drain takes {measured.drain_s:.0f} s, the median of {measured.drains} that were measured."
    if measured.apply_s is None:
        yield f"A node takes {APPLY_ASSUMED_S:.0f} s to apply: this ledger has measured none."
    else:
        applied = f"the median of {measured.applications} that were measured"
        yield f"A node takes {measured.apply_s:.0f} s to apply, reboots of the past included, {applied}."
    if any(one.reboots for one in found.turns):
        yield f"A reboot takes {REBOOT_ASSUMED_S:.0f} s more."
    if past.is_enough and past.median_s is not None:
        yield f"Held devices become free as past allocations did, whose median is {past.median_s / 3600:.2f} h."
    else:
        yield "Held devices stay held: too few allocations have ended to conclude from."
    yield "What becomes free stays so until its node is updated: what begins meanwhile begins elsewhere."


def _answer(found: Preview, zone: Estimate, idle: Estimate, own: Estimate) -> str:
    """The answer in a line, for the order of the pool."""
    if not found.turns:
        return "no node would change"
    text = (
        f"{len(found.turns)} of {found.nodes} nodes in {own.took_s / 3600:.2f} h, {found.at_once} at a time; "
        f"{own.disturbed_gpu_h:.2f} GPU-hours disturbed, {own.interrupted_gpu_h:.2f} interrupted"
    )
    saved = zone.interrupted_gpu_h - idle.interrupted_gpu_h
    return (
        text
        if abs(saved) < 0.01
        else f"{text}; idle first interrupts {abs(saved):.2f} {'fewer' if saved > 0 else 'more'}"
    )
