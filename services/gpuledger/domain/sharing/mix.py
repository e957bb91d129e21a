"""Learns from the pods that came which pods to expect, for fragmentation gradient descent. Pure.

The mix changes in steps, so that what was computed for it can be remembered: a new one is made when a quarter more pods
have come than it has. Memory is bounded: of too many classes the rarest one gives way, and old pods count less.
"""

from typing import Final

from gpuledger.domain.sharing.fragmentation import Fragmentation, Mix, TaskClass

CLASSES_MAX: Final = 256
"""So many classes of pods are counted."""

PODS_MAX: Final = 65_536
"""After so many pods every count is halved, and a class without a pod is forgotten."""

NEW_MIX_AFTER: Final = 4
"""A mix is replaced when one pod in this number has come since."""


class ExpectedPods:
    """Counts pods by class; `fragmentation` is that of the mix in force, and another object when the mix changes."""

    def __init__(self, mix: Mix | None = None) -> None:
        """Begin with a mix, or with nothing."""
        self._counts = dict(mix or {})
        self.fragmentation = Fragmentation(self._counts)
        self._pods = sum(self._counts.values())
        self._since = 0

    def see(self, task: TaskClass) -> None:
        """One more pod of a class has come."""
        if task not in self._counts and len(self._counts) >= CLASSES_MAX:
            rarest = min(self._counts, key=lambda one: (self._counts[one], one))
            self._pods -= self._counts.pop(rarest)
        self._counts[task] = self._counts.get(task, 0) + 1
        self._pods += 1
        self._since += 1
        if self._pods >= PODS_MAX:
            self._halve()
        if self._since * NEW_MIX_AFTER >= self._pods:
            self.renew()

    def renew(self) -> None:
        """Expect from now on what has been counted so far."""
        self.fragmentation = Fragmentation(self._counts)
        self._since = 0

    def _halve(self) -> None:
        self._counts = {one: pods // 2 for one, pods in self._counts.items() if pods > 1}
        self._pods = sum(self._counts.values())
