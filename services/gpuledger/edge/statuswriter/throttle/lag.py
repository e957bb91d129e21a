"""Since when objects of the API server do not show what the ledger knows of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpuledger.edge.statuswriter.metrics.slices import note_duration
from gpuledger.edge.statuswriter.metrics.writer import LATENCY
from gpuledger.edge.statuswriter.reconcile.decide import Key
from gpuledger.runtime.clock import Clock


class Behind:
    """Times of recording, in nanoseconds since 1970, of the first fact that each object does not show yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Key, int] = {}
        self._showing: dict[Key, int] = {}

    def note(self, key: Key, recorded_ns: int | None = None) -> None:
        """An object is behind since then, or since now, unless it has been for longer."""
        self._since.setdefault(key, int(self._clock().timestamp() * 1e9) if recorded_ns is None else recorded_ns)

    def seconds(self, key: Key) -> float:
        """For how long an object has been behind; 0 where it shows everything."""
        noted = [kept[key] for kept in (self._showing, self._since) if key in kept]
        return self._age_s(min(noted)) if noted else 0.0

    @contextmanager
    def catching_up(self, key: Key) -> Iterator[None]:
        """What was noted so far is written in the block; what comes meanwhile counts by itself."""
        since = self._since.pop(key, None)
        if since is None:
            yield
            return
        self._showing[key] = since
        try:
            yield
        except BaseException:
            self._since[key] = since
            raise
        else:
            self._observe(key, since)
        finally:
            self._showing.pop(key, None)

    def settled(self, key: Key, *, has_written: bool) -> None:
        """An object shows everything."""
        since = self._since.pop(key, None)
        if since is not None and has_written:
            self._observe(key, since)

    def clear(self) -> None:
        """Forget all."""
        self._since.clear()

    def _observe(self, key: Key, since_ns: int) -> None:
        LATENCY.observe(self._age_s(since_ns))
        note_duration(key.kind, self._age_s(since_ns))

    def _age_s(self, since_ns: int) -> float:
        return max(0.0, self._clock().timestamp() - since_ns / 1e9)
