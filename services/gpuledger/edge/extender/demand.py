"""What pods ask for, remembered from filter to bind: a bind names the pod alone. Pure."""

from collections import OrderedDict
from functools import lru_cache
from typing import Final

from gpuledger.domain.sharing.hints import hints_of
from gpuledger.domain.sharing.model import PodRequest, Refusal
from gpuledger.domain.sharing.requests import request_of
from gpuledger.edge.extender.pods import SchedulablePod

REQUESTS_KEPT_MAX: Final = 4_096
"""Pods of one workload ask for the same."""


class SeenPods:
    """The pods that were asked about last, by UID, at most `kept_max`."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._pods: OrderedDict[str, SchedulablePod] = OrderedDict()

    def add(self, pod: SchedulablePod) -> bool:
        """Remember a pod as it is now; returns whether it is a new one."""
        is_new = pod.uid not in self._pods
        self._pods[pod.uid] = pod
        self._pods.move_to_end(pod.uid)
        if len(self._pods) > self._kept_max:
            self._pods.popitem(last=False)
        return is_new

    def get(self, uid: str) -> SchedulablePod | None:
        """The pod, as it was asked about last."""
        return self._pods.get(uid)

    def forget(self, uid: str) -> None:
        """It is bound, or gone."""
        self._pods.pop(uid, None)


def demand_of(pod: SchedulablePod) -> PodRequest | Refusal | None:
    """What a pod asks for; None: no shared device. Its Refusal holds for every node."""
    return _demand(pod.amounts, pod.hint, pod.joint, pod.partition)


@lru_cache(maxsize=REQUESTS_KEPT_MAX)
def _demand(
    amounts: tuple[tuple[str, int], ...], hint: str | None, joint: str | None, partition: str | None
) -> PodRequest | Refusal | None:
    hints = hints_of(hint, joint, partition)
    return hints if isinstance(hints, Refusal) else request_of(dict(amounts), hints)
