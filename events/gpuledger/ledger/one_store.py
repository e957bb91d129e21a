"""What is remembered of the streams of a server holds for one store: it may come back with an older copy of them.

That can happen whenever the connection was lost, and in a cluster whenever another server has left it, because a stream
may be that server's. Nothing that was learnt before may be relied on then.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

from gpuledger.ledger.connect import Connection

K = TypeVar("K")
V = TypeVar("V")

Store = tuple[int, int]
"""Names the store that answers: how often we connected by then, and how often another server had left the cluster."""


def store_of(connection: Connection) -> Store:
    """The store that answers by now; whoever compares it with an earlier one sees whether it may be another."""
    return connection.times_connected, connection.client.departures


class Remembered(Generic[K, V]):
    """At most `kept_max` answers of one store, of which the oldest goes first; none once it may be another store."""

    def __init__(self, connection: Connection, kept_max: int) -> None:
        self._connection = connection
        self._kept_max = kept_max
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._store = store_of(connection)

    def get(self, key: K) -> V | None:
        """What was put there; None for nothing."""
        self._forget_lost()
        return self._kept.get(key)

    def put(self, key: K, value: V) -> None:
        """Remember an answer."""
        self._forget_lost()
        self._kept[key] = value
        if len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)

    def _forget_lost(self) -> None:
        present = store_of(self._connection)
        if present != self._store:
            self._kept.clear()
            self._store = present
