"""Folds recorded conditions of nodes and pools into rows: inventory, bootstrap and pools share the rule. Pure."""

from collections.abc import Iterable
from datetime import datetime
from sys import intern
from typing import Any

from gpuledger.domain.table import Table
from gpuledger.events.node import Condition


def put_conditions(table: Table[Any], subject: str, conditions: Iterable[Condition], time: datetime) -> None:
    """Store the conditions of a node or pool; `changed_at` of a condition changes only with its status."""
    for one in conditions:
        before = table.get((subject, one.type))
        changed_at = before.changed_at if before is not None and before.status == one.status else time
        texts = (intern(one.type), intern(one.status), intern(one.reason), intern(one.message))
        row = table.spec.row(intern(subject), *texts, changed_at)
        if row != before:
            table.put(row)
