"""What checks with NCCL take over from a pod: variables, the topology file's mount, shared memory. Pure.

The mount comes along as it is, but read-only. A variable with the topology file comes along only with that mount: in
the image of the check there is no such file.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.preflight.devices import matches
from gpuledger.edge.webhooks.serving.review import Object

TOPOLOGY: Final = "NCCL_TOPO_FILE"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the folder itself, which NCCL uses between processes
TAKEN_MAX: Final = 256
"""How many variables are taken over at most."""


class NcclSettings(NamedTuple):
    """Variables and mounts of a workload that its checks with NCCL have too."""

    env: tuple[dict[str, Any], ...]
    mounts: tuple[dict[str, Any], ...]


def nccl_settings(containers: Sequence[Object], patterns: Sequence[str], volumes: Sequence[Object]) -> NcclSettings:
    """What a check takes over; of a variable that containers set differently, the first container's value."""
    topology = next(_topologies(containers), None)
    found: dict[str, dict[str, Any]] = {}
    for variable in _variables(containers):
        name = str(variable.get("name"))
        if name != TOPOLOGY and matches(name, patterns) and len(found) < TAKEN_MAX:
            found.setdefault(name, _copied(variable))
    if topology is not None:
        found[TOPOLOGY] = {"name": TOPOLOGY, "value": topology[0]}
    memory = next(_shared_memory(containers, volumes), None)
    mounts = [mount for mount in (topology and topology[1], memory) if mount]
    return NcclSettings(tuple(found.values()), tuple(mounts))


def _variables(containers: Iterable[Object]) -> Iterator[Object]:
    for container in containers:
        yield from (mapping(one) for one in items(container, "env"))


def _copied(variable: Object) -> dict[str, Any]:
    return {key: variable[key] for key in ("name", "value", "valueFrom") if key in variable}


def _topologies(containers: Iterable[Object]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The topology files of containers that mount a volume with it, each with that mount."""
    for container in containers:
        named = [one.get("value") for one in map(mapping, items(container, "env")) if one.get("name") == TOPOLOGY]
        path = named[-1] if named else None
        if isinstance(path, str) and path.startswith("/"):
            mount = _mount_of(PurePosixPath(path), items(container, "volumeMounts"))
            if mount is not None:
                yield path, mount


def _mount_of(path: PurePosixPath, mounts: Iterable[object]) -> dict[str, Any] | None:
    """The innermost mount that holds a path; None where its folder depends on the container's own variables."""
    holding = [one for one in map(mapping, mounts) if path.is_relative_to(str(one.get("mountPath")))]
    inner = max(holding, key=lambda one: len(str(one.get("mountPath"))), default=None)
    return None if inner is None or "subPathExpr" in inner else _read_only(inner)


def _read_only(mount: Object) -> dict[str, Any]:
    return {**{key: mount[key] for key in ("name", "mountPath", "subPath") if key in mount}, "readOnly": True}


def _shared_memory(containers: Iterable[Object], volumes: Iterable[Object]) -> Iterator[dict[str, Any]]:
    """Mounts of an emptyDir at the folder of shared memory, which is 64 MiB without one, too little for NCCL."""
    empty = {one.get("name") for one in volumes if isinstance(one.get("emptyDir"), Mapping)}
    for container in containers:
        for mount in map(mapping, items(container, "volumeMounts")):
            if mount.get("mountPath") == SHARED_MEMORY and mount.get("name") in empty:
                yield {"name": mount["name"], "mountPath": SHARED_MEMORY}
