"""Measures the lag: since when an object of the API server does not show what the ledger recorded."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpuledger.edge.statuswriter.cache.objects import ObjectCache
from gpuledger.edge.statuswriter.metrics.slices import note_duration
from gpuledger.edge.statuswriter.metrics.writer import LATENCY
from gpuledger.edge.statuswriter.objects import Key
from gpuledger.runtime.clock import Clock


class Lag:
    """Notes in the state of each object when the ledger recorded the first fact that it does not show yet."""

    def __init__(self, cache: ObjectCache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock

    def note(self, key: Key, recorded_ns: int | None = None) -> None:
        """An object lags since then, or since now, unless it has for longer."""
        state = self._cache.state(key)
        if state.lag_since_ns is None:
            state.lag_since_ns = int(self._clock().timestamp() * 1e9) if recorded_ns is None else recorded_ns

    def seconds(self, key: Key) -> float:
        """For how long an object has lagged; 0 where it shows everything."""
        state = self._cache.state(key)
        since = [time for time in (state.writing_since_ns, state.lag_since_ns) if time is not None]
        return self._age_s(min(since)) if since else 0.0

    @contextmanager
    def catching_up(self, key: Key) -> Iterator[None]:
        """The block writes what was noted so far; what comes meanwhile lags on its own."""
        state = self._cache.state(key)
        since = state.writing_since_ns = state.lag_since_ns
        state.lag_since_ns = None
        if since is None:
            yield
            return
        try:
            yield
        except BaseException:
            state.lag_since_ns = since
            raise
        else:
            self._observe(key, since)
        finally:
            state.writing_since_ns = None

    def settled(self, key: Key, *, has_written: bool) -> None:
        """An object shows everything."""
        state = self._cache.state(key)
        since, state.lag_since_ns = state.lag_since_ns, None
        if since is not None and has_written:
            self._observe(key, since)

    def _observe(self, key: Key, since_ns: int) -> None:
        LATENCY.observe(self._age_s(since_ns))
        note_duration(key.kind, self._age_s(since_ns))

    def _age_s(self, since_ns: int) -> float:
        return max(0.0, self._clock().timestamp() - since_ns / 1e9)
