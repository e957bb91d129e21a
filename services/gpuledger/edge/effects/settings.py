"""Settings that all services have that carry intents out. Units stand last in names."""

from dataclasses import dataclass, field
from datetime import timedelta

from gpuledger.db.locks import LockCheck
from gpuledger.domain.maintenance.lapses import INTENT_AGE_MAX
from gpuledger.projection.snapshots import SnapshotSettings
from gpuledger.runtime.backoff import Backoff


@dataclass(frozen=True, slots=True)
class EffectSettings:
    """Limits of what is written to a cluster.

    `requests_per_s` and `requests_burst` bound the requests to the API server.
    `max_age` is how old an intent may be, by its own time and by that of its recording, to be carried out at all.
    `refusals_max` is how often the API server may refuse an intent before it has failed; trouble that is the server's
    own does not count. `ownership_check_s` is how often the service looks which ledger the cluster belongs to.
    """

    requests_per_s: float
    requests_burst: int
    max_age: timedelta = INTENT_AGE_MAX
    refusals_max: int = 5
    messages_per_batch: int = 1024
    ownership_check_s: float = 5.0
    stopped_retry_s: float = 60.0
    lock_check: LockCheck = field(default_factory=LockCheck)
    snapshots: SnapshotSettings = field(default_factory=SnapshotSettings)
    backoff: Backoff = field(default_factory=Backoff)
    refused_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=1.0, max_s=60.0))
    restart_backoff: Backoff = field(default_factory=lambda: Backoff(max_s=10.0))
