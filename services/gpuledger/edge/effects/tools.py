"""What executors of intents work with."""

from typing import Generic, NamedTuple, TypeVar

from gpuledger.edge.effects.settings import EffectSettings
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker
from gpuledger.edge.kube.client import KubeClient
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
