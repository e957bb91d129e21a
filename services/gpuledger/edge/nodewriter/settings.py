"""Settings of the node writer. Units stand last in names."""

from dataclasses import dataclass, field

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.effects.settings import EffectSettings
from gpuledger.runtime.backoff import Backoff


@dataclass(frozen=True, slots=True)
class NodeWriterSettings(EffectSettings):
    """Limits of what is written to Nodes; one to read a Node and one to write it, at most, unless somebody is faster.

    While nodes are left to work on, outcomes are recorded `outcomes_apart_s` apart, and at most `outcomes_waiting_max`
    wait for that. `conflicts_max` is how often one attempt begins anew because somebody else was faster.
    `untouched_namespaces` are patterns of namespaces that no drain evicts from, beside those of the system. A node that
    is drained is looked at every `drain_poll_s`. What changed is reported after the pause of `drain_reports` at the
    earliest, and anything every `drain_fresh_s` at the latest, well within `max_age`. `sharing` are the names by which
    pods say which shared devices they have.
    """

    requests_per_s: float = 400.0
    requests_burst: int = 800
    untouched_namespaces: tuple[str, ...] = ()
    sharing: SharingNames = field(default_factory=SharingNames)
    drains_at_once_max: int = 8
    drain_poll_s: float = 5.0
    drain_fresh_s: float = 900.0
    nodes_at_once_max: int = 16
    outcomes_apart_s: float = 0.25
    outcomes_waiting_max: int = 256
    conflicts_max: int = 5
    blocked_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=5.0, max_s=60.0))
    drain_reports: Backoff = field(default_factory=lambda: Backoff(first_s=10.0, max_s=300.0))
