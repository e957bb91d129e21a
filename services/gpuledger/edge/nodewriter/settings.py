"""Settings of the node writer. Units stand last in names."""

from dataclasses import dataclass, field
from datetime import timedelta

from gpuledger.db.locks import LockCheck
from gpuledger.domain.maintenance.lapses import INTENT_AGE_MAX
from gpuledger.projection.snapshots import SnapshotSettings
from gpuledger.runtime.backoff import Backoff


@dataclass(frozen=True, slots=True)
class NodeWriterSettings:
    """Limits of what is written to Nodes.

    `max_age` is how old an intent may be, by its own time and by that of its recording, to be carried out at all.
    `requests_per_s` and `requests_burst` bound the requests to the API server, two of which set a node aside.
    `refusals_max` is how often the API server may refuse an intent before it has failed; trouble that is the server's
    own does not count. `conflicts_max` is how often one attempt begins anew because somebody else was faster.
    `untouched_namespaces` are patterns of namespaces that no drain evicts from, beside those of the system. A node that
    is drained is looked at every `drain_poll_s`. What changed is reported after the pause of `drain_reports` at the
    earliest, and anything every `drain_fresh_s` at the latest, well within `max_age`.
    `ownership_check_s` is how often the writer looks which ledger the cluster belongs to.
    """

    max_age: timedelta = INTENT_AGE_MAX
    untouched_namespaces: tuple[str, ...] = ()
    drains_at_once_max: int = 8
    drain_poll_s: float = 5.0
    drain_fresh_s: float = 900.0
    nodes_at_once_max: int = 16
    requests_per_s: float = 400.0
    requests_burst: int = 800
    refusals_max: int = 5
    conflicts_max: int = 5
    messages_per_batch: int = 1024
    ownership_check_s: float = 5.0
    stopped_retry_s: float = 60.0
    lock_check: LockCheck = field(default_factory=LockCheck)
    snapshots: SnapshotSettings = field(default_factory=SnapshotSettings)
    backoff: Backoff = field(default_factory=Backoff)
    refused_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=1.0, max_s=60.0))
    blocked_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=5.0, max_s=60.0))
    drain_reports: Backoff = field(default_factory=lambda: Backoff(first_s=10.0, max_s=300.0))
    restart_backoff: Backoff = field(default_factory=lambda: Backoff(max_s=10.0))
