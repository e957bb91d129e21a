"""Events of machine configuration for tests: what a service decides about a pool `gpu` and its nodes, in hours."""

from collections.abc import Iterable

from gpuledger.events.envelope import Decoded
from gpuledger.events.machine_config import (
    ConfigSource,
    MachineConfigPoolChanged,
    MachineConfigRendered,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    NodeConfigPhase,
)
from gpuledger.events.node import Condition
from gpuledger.events.payload import Payload
from support.events import event, hour

ROLLOUT = "/services/rollout"
POOL = "gpu"
OLD, NEW, NEWER = (f"rendered-{POOL}-{digit * 10}" for digit in "abc")


def rendered(name: str, *sources: str) -> MachineConfigRendered:
    """A rendered configuration without files."""
    revision = name.rpartition("-")[2]
    return MachineConfigRendered(
        name=name,
        revision=revision,
        config_hash=revision[0] * 64,
        sources=tuple(ConfigSource(name=one, priority=50) for one in sources),
    )


def changed(target: str | None, updated: int, of: int = 3, *, unavailable: int = 0) -> MachineConfigPoolChanged:
    """The state of a pool where so many nodes have the target."""
    return MachineConfigPoolChanged(
        target_revision=target,
        current_revision=OLD,
        machine_count=of,
        updated_count=updated,
        unavailable=unavailable,
        conditions=(
            Condition(type="Updating", status="True" if updated < of else "False", reason="RolloutInProgress"),
            Condition(type="Degraded", status="False", reason="AsExpected"),
        ),
    )


def phase(
    phase: NodeConfigPhase, desired: str | None = None, *, pool: str | None = POOL, message: str = ""
) -> NodeConfigChanged:
    """A node is so far."""
    reason = "ApplyTimeout" if phase == "Failed" else None
    return NodeConfigChanged(
        uid="uid",
        pool=pool,
        desired_revision=desired,
        desired_set_at=hour(0) if desired else None,
        phase=phase,
        reason=reason,
        message=message,
    )


def drain_failed(attempt: int, *, is_stuck: bool = False) -> NodeConfigDrainFailed:
    """A node's drain has outlasted so many retry intervals."""
    return NodeConfigDrainFailed(pool=POOL, attempt=attempt, left=1, is_stuck=is_stuck)


def decided(*facts: tuple[str, float, Payload]) -> list[Decoded]:
    """What the service decides about subjects at hours."""
    return list(_decided(facts))


def _decided(facts: Iterable[tuple[str, float, Payload]]) -> Iterable[Decoded]:
    for number, (subject, at, data) in enumerate(facts, 1):
        yield event(data, subject, number=number, at=at, source=ROLLOUT)
