"""Metrics of the watchers themselves, labelled by watcher. Nothing here decides anything."""

from datetime import datetime

from prometheus_client import Counter, Gauge

from gpuledger.runtime.clock import Clock

_EVENTS = Counter("gpuledger_watcher_events_total", "Differences that were recorded.", ["watcher"])
_LISTS = Counter("gpuledger_watcher_lists_total", "Complete lists that were compared with the ledger.", ["watcher"])
_ERRORS = Counter("gpuledger_watcher_errors_total", "Failures of servers, by error.", ["watcher", "error"])
_CONTACT = Gauge(
    "gpuledger_watcher_contact_seconds",
    "Since the API server last answered; an idle stream is renewed every ten minutes. 0 while not watching.",
    ["watcher"],
)
_REFUSED = Gauge(
    "gpuledger_watcher_refused_objects",
    "Objects that the ledger does not have as they are, because it takes no such event. 0 while not watching.",
    ["watcher"],
)
_ACTIVE = Gauge("gpuledger_watchers_active", "1 while this process records, 0 on standby.")


class WatcherMetrics:
    """The metrics of one watcher."""

    def __init__(self, watcher: str, clock: Clock) -> None:
        self._watcher = watcher
        self._clock = clock
        self._contact_at: datetime | None = None
        self._events = _EVENTS.labels(watcher)
        self._lists = _LISTS.labels(watcher)
        _CONTACT.labels(watcher).set_function(self.since_contact_s)

    def began(self) -> None:
        """The watcher is in contact with the API server from now on."""
        self._contact_at = self._clock()

    def ended(self) -> None:
        """The watcher has no contact with the API server any more."""
        self._contact_at = None
        self.refused(0)

    def refused(self, objects: int) -> None:
        """The ledger will never take the events of so many objects as they are."""
        _REFUSED.labels(self._watcher).set(objects)

    def answered(self) -> None:
        """The API server answered."""
        self._contact_at = self._clock()

    def listed(self) -> None:
        """A complete list was compared."""
        self._lists.inc()

    def recorded(self, events: int) -> None:
        """Differences were recorded."""
        self._events.inc(events)

    def failed(self, error: BaseException) -> None:
        """A server failed."""
        _ERRORS.labels(self._watcher, type(error).__name__).inc()

    def since_contact_s(self) -> float:
        """Seconds since the API server last answered, 0 while not watching."""
        return 0.0 if self._contact_at is None else max(0.0, (self._clock() - self._contact_at).total_seconds())


def active(value: bool) -> None:
    """Whether this process records."""
    _ACTIVE.set(int(value))


def refused_objects() -> dict[str, int]:
    """By watcher, how many objects the ledger does not have as they are; only those with any."""
    samples = [sample for family in _REFUSED.collect() for sample in family.samples]
    return {sample.labels["watcher"]: int(sample.value) for sample in samples if sample.value}
