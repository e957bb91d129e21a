"""Settings of the status writer, and the context that its parts share. Units stand last in names."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gpuledger.api.kinds import Resource
from gpuledger.api.sharing import SharingNames
from gpuledger.db.locks import LockCheck
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.statuswriter.events.series import EVENT_AGE_MAX_S
from gpuledger.edge.statuswriter.objects import Kind, resource_of
from gpuledger.projection.snapshots import SnapshotSettings
from gpuledger.runtime.backoff import Backoff, Jitter
from gpuledger.runtime.clock import Clock
from gpuledger.runtime.settings import ComponentSettings, OwnDeployment


@dataclass(frozen=True, slots=True)
class StatusWriterSettings:
    """Limits of writes and of Kubernetes Events.

    `corrections_per_hour_max` is per object: whoever changes it more often gets their way until an earlier correction
    is an hour old. `relist_period_s` is how often everything is listed although no watch was interrupted.
    `slice_status_pause_s` is the least time between two writes of one ResourceSliceStatus's status once a burst of
    `slice_writes_burst` of them is used up, of which `slice_writes_per_s` come back; before, it is shorter in
    proportion. `orphan_grace_s` is how long a deleted one stays away before it is created again: it may have gone with
    its slice.
    `without_pool_grace_s` is how long a node's GPUs are ready without a pool before an Event says so.
    `coverage_after_s` is how long a node's inventory is incomplete before an Event says which of its labels differ from
    those that the NodeFeatureRule derives; it is less than `event_age_max_s`.
    `coverage_namespace` is where a Job waits that compares all labels; None where no chart keeps one. It is started by
    then, `coverage_check_s` is how often the writer looks, and `coverage_repeat_s` how soon one runs again for nodes of
    which nothing else is recorded.
    `event_age_max_s` is how old an occurrence may be to become an Event, EVENT_AGE_MAX_S at most.
    `ownership_check_s` is how often the writer looks which ledger the cluster belongs to, and so how long it may go on
    after another ledger took the cluster over.
    `deployments` are those that we run in, where the chart installed them; `scale_check_s` is how often their numbers
    of pods are compared with the settings.
    `sharing` are the names of what is about shared devices.
    `reclaim_pause_s` is how long who had a cluster lets others claim it, who look more often than that.
    """

    writes_at_once_max: int = 16
    writes_per_s: float = 400.0
    writes_burst: int = 800
    corrections_per_hour_max: int = 6
    slice_status_pause_s: float = 0.2
    slice_writes_per_s: float = 100.0
    slice_writes_burst: int = 250
    without_pool_grace_s: float = 30.0
    coverage_after_s: float = 300.0
    coverage_namespace: str | None = None
    coverage_check_s: float = 30.0
    coverage_repeat_s: float = 86_400.0
    orphan_grace_s: float = 0.5
    relist_period_s: float = 600.0
    lock_check: LockCheck = field(default_factory=LockCheck)
    messages_per_batch: int = 1024
    events_per_s: float = 5.0
    events_burst: int = 50
    events_waiting_max: int = 2_000
    events_tried_max: int = 5
    event_age_max_s: float = EVENT_AGE_MAX_S
    series_period_s: float = 600.0
    stopped_retry_s: float = 60.0
    sharing: SharingNames = field(default_factory=SharingNames)
    ownership_check_s: float = 5.0
    reclaim_pause_s: float = 60.0
    snapshots: SnapshotSettings = field(default_factory=SnapshotSettings)
    deployments: tuple[OwnDeployment, ...] = ()
    scale_check_s: float = 30.0
    components: ComponentSettings = field(default_factory=ComponentSettings)
    backoff: Backoff = field(default_factory=Backoff)
    restart_backoff: Backoff = field(default_factory=lambda: Backoff(max_s=10.0))
    refused_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=5.0, max_s=300.0))


@dataclass(frozen=True, slots=True)
class WriteContext:
    """API server, settings, clock and chance; `now` gives seconds of a steady clock."""

    client: KubeClient
    settings: StatusWriterSettings
    clock: Clock
    now: Callable[[], float]
    jitter: Jitter

    def resource(self, kind: Kind) -> Resource:
        """Where a kind is."""
        return resource_of(kind, self.settings.sharing)
