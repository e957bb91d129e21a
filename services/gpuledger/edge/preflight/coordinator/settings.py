"""Settings of the coordinator of gangs. Units stand last in names."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gpuledger.edge.effects.settings import EffectSettings
from gpuledger.edge.preflight.coordinator.decide import Pacing
from gpuledger.runtime.backoff import Backoff

GANG_TIMEOUT_S: Final = 600.0
"""How long a gang may take unless the configuration says otherwise."""


@dataclass(frozen=True, slots=True)
class CoordinatorSettings(EffectSettings):
    """Limits of what is written for gangs.

    A gang that is not complete within `gang_timeout_s`, as configured at the moment, is recorded as timed out, once a
    round. `rechecks` are the pauses between two looks at the ConfigMap of a gang whose pods are at their checks,
    `size_looks` those between two looks for the object that says how many pods a gang has, and `size_rechecks` those
    between two looks whether it still says so. `events_waiting_max` bounds the Kubernetes Events about failed checks
    that wait to be written, and `event_age_max_s` how old a failure may be to become one. ConfigMaps go with the
    ClusterRole `owner`, if any.
    """

    requests_per_s: float = 50.0
    requests_burst: int = 100
    gangs_at_once_max: int = 8
    gang_timeout_s: Callable[[], float] = lambda: GANG_TIMEOUT_S
    pacing: Pacing = field(default_factory=Pacing)
    rechecks: Backoff = field(default_factory=lambda: Backoff(first_s=5.0, max_s=120.0))
    size_looks: Backoff = field(default_factory=lambda: Backoff(first_s=1.0, max_s=60.0))
    size_rechecks: Backoff = field(default_factory=lambda: Backoff(first_s=30.0, max_s=300.0))
    events_waiting_max: int = 2_000
    events_tried_max: int = 5
    event_age_max_s: float = 600.0
    owner: str | None = None
