"""What the rollout and the watchers record about machine configuration, and the desired state that follows."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from gpuledger.domain.machineconfig.config_hash import config_hash
from gpuledger.domain.machineconfig.desired import DesiredFile, DesiredUnit
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.objects import Key
from gpuledger.events.machine_config import (
    ConfigFile,
    ConfigSource,
    ConfigUnit,
    MachineConfigPoolChanged,
    MachineConfigPoolDefined,
    MachineConfigPoolGone,
    MachineConfigPoolWithdrawn,
    MachineConfigRendered,
    MachineConfigRenderedWithdrawn,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    NodeConfigReported,
    pack_content,
)
from gpuledger.events.node import Condition
from gpuledger.ledger.api import Message
from support.events import RecordedFact, SubjectFact, folded, log_of, numbered
from support.gpu_states import source_of

INTRODUCED = (
    MachineConfigPoolChanged, MachineConfigPoolDefined, MachineConfigPoolGone, MachineConfigPoolWithdrawn,
    MachineConfigRendered, MachineConfigRenderedWithdrawn, NodeConfigChanged, NodeConfigDrainFailed, NodeConfigReported,
)  # fmt: skip
POOL, NODE, UID = "worker", "w1", "u1"
SET_AT = datetime(2026, 1, 9, 10, tzinfo=UTC)
PATH, CONTENT = "/etc/chrony.conf", "server ntp.example.com iburst\n"


def rendered(content: str = CONTENT, pool: str = POOL, **more: Any) -> MachineConfigRendered:
    """A configuration with a file and a unit, as the rollout renders it."""
    file = DesiredFile(PATH, content, 0o644, "root:root", "present")
    unit = DesiredUnit("chronyd.service", True, None, False)
    found = config_hash([file], [unit], reboot_required=True)
    facts: dict[str, Any] = {
        "name": f"rendered-{pool}-{found[:10]}",
        "revision": found[:10],
        "config_hash": found,
        "files": (ConfigFile(path=PATH, content=pack_content(content), hash=sha256(content.encode()).hexdigest()),),
        "units": (ConfigUnit(name=unit.name, enabled=True),),
        "reboot_required": True,
        "sources": (ConfigSource(name="chrony", priority=50),),
    }
    return MachineConfigRendered(**(facts | more))


RENDERED = rendered()


def defined(uid: str = "p1", **more: Any) -> MachineConfigPoolDefined:
    """A pool."""
    return MachineConfigPoolDefined(uid=uid, generation=4, **more)


def changed(*conditions: tuple[str, Any, str], **more: Any) -> MachineConfigPoolChanged:
    """The state of a pool whose three nodes are to have `RENDERED`; conditions are type, status and reason."""
    listed = tuple(Condition(type=kind, status=status, reason=reason) for kind, status, reason in conditions)
    facts: dict[str, Any] = {"target_revision": RENDERED.name, "machine_count": 3, "observed_generation": 4}
    return MachineConfigPoolChanged(conditions=listed, **(facts | more))


def configured(phase: Any = "Applying", desired: str | None = RENDERED.name, **more: Any) -> NodeConfigChanged:
    """A node's update."""
    facts: dict[str, Any] = {"uid": UID, "pool": POOL, "desired_set_at": SET_AT if desired else None}
    return NodeConfigChanged(phase=phase, desired_revision=desired, **(facts | more))


def config_state(*facts: SubjectFact) -> DesiredState:
    """The desired state after these facts, an hour apart."""
    state = folded(DesiredProjection(), _log(facts), types=INTRODUCED).state
    assert isinstance(state, DesiredState)
    return state


def config_changes(*facts: SubjectFact) -> set[Key]:
    """The objects that the last of these facts may have changed."""
    log = _log(facts)
    fold = folded(DesiredProjection(), log[:-1], types=INTRODUCED)
    assert isinstance(fold.state, DesiredState)
    fold.state.take_changed()
    fold.apply_all(log[-1:])
    return set(fold.state.take_changed())


def _log(facts: Sequence[SubjectFact]) -> list[Message]:
    numbers = enumerate(facts, 1)
    return log_of(numbered(RecordedFact(source_of(data), subject, at, data) for at, (subject, data) in numbers))
