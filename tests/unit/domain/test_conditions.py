"""Conditions of nodes and pools as rows: their time is that of their status."""

from datetime import UTC, datetime, timedelta

from gpuledger.domain.conditions import put_conditions
from gpuledger.domain.pools.pools import GPU_POOL_CONDITION, PoolCondition
from gpuledger.domain.table import Table
from gpuledger.events.node import Condition

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
LATER = FIRST + timedelta(hours=1)


def ready(status: str, reason: str) -> Condition:
    return Condition.model_validate({"type": "Ready", "status": status, "reason": reason})


def test_the_time_of_a_condition_changes_only_with_its_status() -> None:
    table = Table(GPU_POOL_CONDITION, "pool")
    put_conditions(table, "p", [ready("False", "Empty")], FIRST)
    put_conditions(table, "p", [ready("False", "Invalid")], LATER)
    assert table.get(("p", "Ready")) == PoolCondition("p", "Ready", "False", "Invalid", "", FIRST)
    put_conditions(table, "p", [ready("True", "Valid")], LATER)
    assert table.get(("p", "Ready")) == PoolCondition("p", "Ready", "True", "Valid", "", LATER)


def test_an_equal_condition_is_not_written_again() -> None:
    table = Table(GPU_POOL_CONDITION, "pool")
    put_conditions(table, "p", [ready("True", "Valid")], FIRST)
    table.take_changes()
    put_conditions(table, "p", [ready("True", "Valid")], LATER)
    assert len(table.take_changes()) == 0
