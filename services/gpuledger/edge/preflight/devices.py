"""Which GPUs and network devices a pod requests, by extended resources and by claims. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.preflight.amounts import amount_of
from gpuledger.edge.preflight.claims import Classes
from gpuledger.edge.preflight.configuration import Detection
from gpuledger.edge.webhooks.serving.review import Object


class PodContainers(NamedTuple):
    """The containers of a pod, without those of checks: those that run side by side, and those that run before."""

    running: tuple[Object, ...]
    initial: tuple[Object, ...] = ()

    @property
    def all(self) -> tuple[Object, ...]:
        """All of them, those of the workload first."""
        return (*self.running, *self.initial)


class Devices(NamedTuple):
    """Devices of a kind: amounts of extended resources, the most that any container requests, and the pod's claims."""

    amounts: Mapping[str, str]
    claims: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.amounts or self.claims)


def containers_of(pod: Object, own: frozenset[str]) -> PodContainers:
    """The pod's containers; those of checks, whose names are `own`, are left out of its init containers."""
    initial = [one for one in map(mapping, items(pod, "spec", "initContainers")) if one.get("name") not in own]
    sidecars = [one for one in initial if one.get("restartPolicy") == "Always"]
    others = [one for one in initial if one.get("restartPolicy") != "Always"]
    return PodContainers((*map(mapping, items(pod, "spec", "containers")), *sidecars), tuple(others))


def devices_of(containers: Iterable[Object], classes: Classes, detection: Detection) -> Devices:
    """The devices of a kind that the containers and claims of a pod request."""
    most = dict(_largest(containers, detection.resources))
    sought = frozenset(detection.device_classes)
    claims = tuple(claim for claim, found in classes.items() if found is not None and found & sought)
    return Devices(most, claims)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of the glob patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _largest(containers: Iterable[Object], patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each resource that fits a pattern, with the largest amount of it, in order of names."""
    found: dict[str, int] = {}
    for container in containers:
        for name, whole in _amounts(container, patterns):
            found[name] = max(whole, found.get(name, 0))
    for name in sorted(found):
        yield name, str(found[name])


def _amounts(container: Object, patterns: Sequence[str]) -> Iterator[tuple[str, int]]:
    """What a container requests of resources that fit a pattern, in whole numbers above zero."""
    for kind in ("limits", "requests"):
        for name, given in mapping(container, "resources", kind).items():
            if matches(name, patterns) and (amount := amount_of(given)) is not None and amount.nanos > 0:
                yield name, amount.whole
