"""Settings of the remediator. Units stand last in names."""

from dataclasses import dataclass

from gpuledger.edge.effects.settings import EffectSettings


@dataclass(frozen=True, slots=True)
class RemediatorSettings(EffectSettings):
    """Limits of what is created. An object without an outcome is looked at every `poll_s`."""

    requests_per_s: float = 50.0
    requests_burst: int = 100
    poll_s: float = 5.0
    objects_at_once_max: int = 8
