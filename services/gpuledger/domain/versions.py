"""Keeps histories of facts: for each thing, which version was in force from when to when, in event time.

The order of recording does not matter: a late fact goes where it belongs and corrects the ranges around it. Of two
facts with the same time the one recorded later is in force.
"""

from bisect import bisect_left
from operator import attrgetter
from typing import Any, TypeVar

from gpuledger.domain.table import Table
from gpuledger.events.position import is_after

V = TypeVar("V", bound=tuple[Any, ...])
"""A row with `valid_from`, `valid_to` (None: still) and `position`; it holds up to, not including, `valid_to`."""

_valid_from = attrgetter("valid_from")


def put_version(table: Table[V], versions: list[V], version: V) -> V:
    """Add a version of a thing to its history, and return the latest one.

    Args:
        table: the versions of all things.
        versions: all versions of this thing, in any order.
        version: the new one; its `valid_to` is computed here.
    """
    ordered: list[Any] = sorted(versions, key=_valid_from)
    new: Any = version
    at = bisect_left(ordered, new.valid_from, key=_valid_from)
    here = ordered[at] if at < len(ordered) else None
    if here is not None and here.valid_from == new.valid_from:
        if is_after(new.position, here.position):
            table.put(new._replace(valid_to=here.valid_to))
    else:
        table.put(new._replace(valid_to=None if here is None else here.valid_from))
        if at > 0:
            table.put(ordered[at - 1]._replace(valid_to=new.valid_from))
    latest = table.get(table.key_of(version if here is None else ordered[-1]))
    assert latest is not None
    return latest
