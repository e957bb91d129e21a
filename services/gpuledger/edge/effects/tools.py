"""What executors of intents work with."""

from typing import Generic, NamedTuple, TypeVar

from gpuledger.edge.effects.settings import EffectSettings
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, is_refusal
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.outcomes import OutcomeRecorder
from gpuledger.runtime.backoff import Jitter
from gpuledger.runtime.clock import Clock

SettingsT = TypeVar("SettingsT", bound=EffectSettings)


class EffectTools(NamedTuple, Generic[SettingsT]):
    """What an executor works with; `breaker` lets requests through, `jitter` is chance."""

    client: KubeClient
    breaker: CircuitBreaker
    recorder: OutcomeRecorder
    settings: SettingsT
    clock: Clock
    jitter: Jitter

    def pause_s(self, error: KubeError, failures: int) -> float:
        """Seconds to wait before what has failed so often in a row, the last time so, is tried again."""
        backoff = self.settings.refused_backoff if is_refusal(error) else self.settings.backoff
        return backoff.pause_s(failures, self.jitter())
