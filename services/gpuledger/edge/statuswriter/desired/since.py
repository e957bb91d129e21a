"""When something that an Event may be about began, as rows by node. Pure."""

from datetime import datetime
from typing import NamedTuple

from gpuledger.domain.fact import Fact
from gpuledger.domain.table import Table, TableSpec


class Since(NamedTuple):
    """When something of a node began, and when that was recorded."""

    node: str
    at: datetime
    recorded_ns: int


def since(fact: Fact, node: str) -> Since:
    """It began with this fact."""
    return Since(node, fact.event.time, fact.recorded_ns)


def by_node(name: str) -> Table[Since]:
    """An empty table of this name."""
    table = Table(TableSpec(name, Since, ("node",)))
    table.never_written()
    return table
