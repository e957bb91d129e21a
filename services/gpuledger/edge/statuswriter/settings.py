"""Bounds of the status writer. Units stand last in names."""

from dataclasses import dataclass, field

from gpuledger.db.locks import LockCheck
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.settings import ComponentSettings


@dataclass(frozen=True, slots=True)
class StatusWriterSettings:
    """How much is written at once, how often a change by somebody else is undone, and what is still news.

    `undos_per_hour_max` is per object: who changes it more often than that gets their way until an earlier undo is an
    hour old. `relist_period_s` is how often everything is listed anew although no watch was interrupted.
    `slice_status_pause_s` is what lies at least between two writes of one ResourceSliceStatus's status, and
    `orphan_grace_s` how long one that was deleted may be gone before it is made again: it may have gone with its slice.
    `without_pool_grace_s` is how long a node's GPUs are ready without a pool before people are told.
    """

    writes_at_once_max: int = 16
    writes_per_s: float = 400.0
    writes_burst: int = 800
    undos_per_hour_max: int = 6
    slice_status_pause_s: float = 0.2
    without_pool_grace_s: float = 30.0
    orphan_grace_s: float = 0.5
    relist_period_s: float = 600.0
    lock_check: LockCheck = field(default_factory=LockCheck)
    messages_per_batch: int = 1024
    events_per_s: float = 5.0
    events_burst: int = 50
    events_waiting_max: int = 2_000
    events_tried_max: int = 5
    news_age_max_s: float = 600.0
    series_period_s: float = 600.0
    stopped_retry_s: float = 60.0
    components: ComponentSettings = field(default_factory=ComponentSettings)
    backoff: Backoff = field(default_factory=Backoff)
    restart_backoff: Backoff = field(default_factory=lambda: Backoff(max_s=10.0))
    refused_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=5.0, max_s=300.0))
