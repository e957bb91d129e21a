"""What agents and people write at the length and size that is allowed: every decision that shows it fits its event."""

import pytest

from gpuledger.events.device import MIG_INSTANCES_MAX
from gpuledger.events.payload import BIGINT_MAX, CUT, TEXT_LENGTH_MAX
from support.pools import PoolsLog, marked, pool, refused

LONGEST = "m" * TEXT_LENGTH_MAX
MIG = {"unit": "MIG", "mig_profile": "1g.5gb"}


def message_of(log: PoolsLog, pool_id: str, condition: str) -> str:
    return log.state.condition.rows[pool_id, condition].message


@pytest.fixture
def log() -> PoolsLog:
    log = PoolsLog().begin("n1", devices=2)
    log.record("ns/p", pool())
    return log


def test_the_longest_refusal_of_a_device_that_waits_is_cut_and_decided_once(log: PoolsLog) -> None:
    log.record("n1-0", marked("p"))
    assert log.record("n1-0", refused("ns/p", text=LONGEST))
    message = message_of(log, "ns/p", "Misconfigured")
    assert (message[:5], message[-1], len(message)) == ("An ag", CUT, TEXT_LENGTH_MAX)
    assert log.record("n1-0", refused("ns/p", text=LONGEST)) == []


@pytest.mark.parametrize("length", [TEXT_LENGTH_MAX - 36, TEXT_LENGTH_MAX])
def test_the_longest_drift_of_an_assigned_device_is_cut(log: PoolsLog, length: int) -> None:
    log.assign("n1-0", "ns/p").record("n1-0", refused("ns/p", text="m" * length))
    message = message_of(log, "ns/p", "Maintenance")
    assert (message[:6], message[-1], len(message)) == ("n1-0: ", CUT, TEXT_LENGTH_MAX)


@pytest.mark.parametrize("name", ["x" * TEXT_LENGTH_MAX, "\U000e0001" * TEXT_LENGTH_MAX])
def test_the_longest_name_that_an_annotation_holds_is_cut_and_decided_once(log: PoolsLog, name: str) -> None:
    log.record("n1-0", marked(name))
    assert len(log.state.assignment.rows["n1-0"].message) == TEXT_LENGTH_MAX
    assert log.record("n1-0", marked(name)) == []


@pytest.mark.parametrize("partitions", [MIG_INSTANCES_MAX, MIG_INSTANCES_MAX + 1, BIGINT_MAX])
def test_a_card_has_no_more_partitions_than_a_card_can_have(log: PoolsLog, partitions: int) -> None:
    log.record("ns/m", pool(**MIG, slices_per_unit=2))
    for device in ("n1-0", "n1-1"):
        log.assign(device, "ns/m", partitions)
    assert log.total("ns/m") == 2 * 2 * MIG_INSTANCES_MAX
    assert log.state.tally.rows["ns/m"].partitions == 2 * MIG_INSTANCES_MAX
