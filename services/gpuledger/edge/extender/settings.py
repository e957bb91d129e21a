"""Settings of the extender: what it answers to, and how long and how much it works. Units stand last in names."""

from dataclasses import dataclass, field
from typing import Final

from gpuledger.api.sharing import DOMAIN, SharingNames, Strategy
from gpuledger.edge.effects.settings import EffectSettings
from gpuledger.edge.webhooks.settings import ServingSettings
from gpuledger.runtime.backoff import Backoff

LISTEN: Final = "0.0.0.0:9447"

HTTP_TIMEOUT_S: Final = 15.0
"""What the shipped configuration of kube-scheduler gives as `httpTimeout`; all answers come earlier."""


def _serving() -> ServingSettings:
    return ServingSettings(
        listen=LISTEN, review_bytes_max=32 * 1024 * 1024, reviews_at_once_max=64, connections_max=256
    )


@dataclass(frozen=True, slots=True)
class ExtenderSettings(EffectSettings):
    """Limits of the extender.

    `strategy` chooses nodes and devices. With `one_in_flight` a node gets the next pod only once the container of the
    last one has started, or `in_flight_max_s` after its binding: where the node's device plugin gives devices out,
    nothing else says for which pod it is called.

    What another process has reserved is settled once it is older than `predecessor_max_s`: by then that process works
    on it no more. A request is answered within `answer_timeout_s`, and a pod that is not bound within `attempt_max_s`
    is undone. No request to Kubernetes takes longer than `request_timeout_s`. At most `binds_at_once_max` pods are
    bound at a time, of `binds_waiting_max`. Pods are remembered from filter to bind, `pods_kept_max` of them.
    A bound pod that watchers have not seen after `unobserved_max_s` is looked up every `unobserved_check_s`.
    Reservations whose outcome is open are looked at by `settlers_max` workers, and again after `settle_backoff`.
    """

    requests_per_s: float = 2_000.0
    requests_burst: int = 2_000
    names: SharingNames = field(default_factory=lambda: SharingNames(DOMAIN))
    strategy: Strategy = Strategy.LEAST_ALLOCATED
    one_in_flight: bool = False
    in_flight_max_s: float = 120.0
    answer_timeout_s: float = 12.0
    attempt_max_s: float = 8.0
    predecessor_max_s: float = 12.0
    request_timeout_s: float = 3.0
    binds_at_once_max: int = 64
    binds_waiting_max: int = 1_024
    pods_kept_max: int = 8_192
    unobserved_max_s: float = 300.0
    unobserved_check_s: float = 60.0
    settlers_max: int = 4
    settle_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.5, max_s=30.0))
    serving: ServingSettings = field(default_factory=_serving)
