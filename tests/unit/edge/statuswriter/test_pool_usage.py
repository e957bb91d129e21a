"""What the partitions that agents report make of a pool's capacity, without any server."""

from typing import Any

from gpuledger.events.device import MIG_INSTANCES_MAX, DevicePoolApplied, DeviceWithdrawn
from gpuledger.events.payload import BIGINT_MAX
from support.gpu_states import MIG, POOL, assigned, desired_state, found


def partitions(*facts: Any) -> dict[str, int]:
    return dict(desired_state(*facts).pool_usage.partitions.rows.values())


def test_a_card_has_no_more_partitions_than_a_card_can_have() -> None:
    applied = DevicePoolApplied(pool=POOL, partitions=BIGINT_MAX)
    facts = [*found("w1-0"), (POOL, MIG), ("w1-0", assigned("Pending"))]
    assert partitions(*facts, ("w1-0", applied)) == {"w1-0": MIG_INSTANCES_MAX}


def test_an_agent_speaks_of_its_own_nodes_devices_only() -> None:
    facts = [*found("w1-0"), *found("w2-0", node="w2"), (POOL, MIG)]
    facts += [("w1-0", assigned("Pending")), ("w2-0", assigned("Pending"))]
    applied = DevicePoolApplied(pool=POOL, partitions=7)
    assert partitions(*facts, ("w1-0", applied), ("w2-0", applied)) == {"w1-0": 7}
    assert partitions(*facts, ("w1-0", applied), ("w1-0", DeviceWithdrawn())) == {}
