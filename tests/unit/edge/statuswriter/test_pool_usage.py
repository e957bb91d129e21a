"""What the partitions that agents report make of a pool's capacity, without any server."""

from gpuledger.events.device import MIG_INSTANCES_MAX, DevicePoolApplied
from gpuledger.events.payload import BIGINT_MAX
from support.gpu_states import MIG, POOL, assigned, desired_state, found


def test_a_card_has_no_more_partitions_than_a_card_can_have() -> None:
    applied = DevicePoolApplied(pool=POOL, partitions=BIGINT_MAX)
    state = desired_state(*found("w1-0"), (POOL, MIG), ("w1-0", assigned("Pending")), ("w1-0", applied))
    assert dict(state.pool_usage.partitions.rows.values()) == {"w1-0": MIG_INSTANCES_MAX}
