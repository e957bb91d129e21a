"""What checks with NCCL take over from a pod: variables, the topology file's mount, shared memory. Pure.

The mount comes along as it is, but read-only. No other variable that names a file or a folder comes along: what it
means is not in the check's image, or is the workload's own code, which must not run where the check reports from. What
a variable refers to as `$(NAME)` is put into its place.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any, Final, NamedTuple

from gpuledger.api.preflight import Variable
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.preflight.devices import matches
from gpuledger.edge.webhooks.serving.review import Object

TOPOLOGY: Final = "NCCL_TOPO_FILE"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the folder itself, which NCCL uses between processes
NEVER_TAKEN: Final = frozenset({TOPOLOGY, "NCCL_COMM_ID", *Variable})
"""The topology file, which comes with its mount; the address at which the workload's own processes meet; and the
settings of checks, which are not the workload's to choose."""

PROGRAM_FOLDERS: Final = (
    "/bin", "/dev", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/ssl",
    "/lib", "/lib32", "/lib64", "/opt/gpuledger", "/proc", "/run/gpuledger", "/run/secrets", "/sbin", "/sys",
    "/tmp", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/local/bin", "/usr/local/cuda", "/usr/local/lib",  # noqa: S108
    "/usr/local/nvidia", "/usr/local/sbin", "/usr/sbin", "/var/run/gpuledger", "/var/run/secrets",
)  # fmt: skip
"""Where images have programs and what these trust. A volume of the pod there would run, and report, as the check."""

FILE_NAMES: Final = ("*FILE*", "*PATH*", "*DIR*", "*PLUGIN*", "*_PREFIX*")
"""Variables that may name files, in capitals, for values that stand elsewhere."""

_REFERENCE: Final = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
"""How a variable refers to one before it; `$$` stands for a dollar sign."""

_NETWORK: Final = re.compile(r"[0-9a-fA-F.:]+/[0-9]{1,3}")

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
    for container in containers:
        for name, variable in _taken(container, patterns).items():
            if len(found) < TAKEN_MAX:
                found.setdefault(name, variable)
    if topology is not None:
        found[TOPOLOGY] = {"name": TOPOLOGY, "value": topology[0]}
    memory = next(_shared_memory(containers, volumes), None)
    mounts = [mount for mount in (topology and topology[1], memory) if mount]
    return NcclSettings(tuple(found.values()), tuple(mounts))


def _taken(container: Object, patterns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The variables of a container that fit a pattern. Of one name the last holds."""
    values, found = _values(container), {}
    for variable in map(mapping, items(container, "env")):
        name = str(variable.get("name"))
        value = values[name]
        if matches(name, patterns) and name not in NEVER_TAKEN and not _names_file(name, value, variable):
            found[name] = (
                _copied(variable) if value in (None, variable.get("value", "")) else {"name": name, "value": value}
            )
    return found


def _values(container: Object) -> dict[str, str | None]:
    """The values of a container's variables, None where one stands elsewhere. Of one name the last holds."""
    values: dict[str, str | None] = {}
    for variable in map(mapping, items(container, "env")):
        values[str(variable.get("name"))] = _value(variable, values)
    return values


def _value(variable: Object, before: Mapping[str, str | None]) -> str | None:
    """A variable's value with those that it refers to in their place; None where one of them stands elsewhere."""
    if "valueFrom" in variable:
        return None
    text = str(variable.get("value", ""))
    if any(name in before and before[name] is None for name in _REFERENCE.findall(text)):
        return None
    return _REFERENCE.sub(lambda found: found[0] if found[1] not in before else before[found[1]] or "", text)


def _names_file(name: str, value: str | None, variable: Object) -> bool:
    """Whether a variable may name a file; one that refers to a value that stands elsewhere cannot be taken either."""
    if value is None:
        return "valueFrom" not in variable or matches(name.upper(), FILE_NAMES)
    return any("/" in part and not _NETWORK.fullmatch(part) for part in value.split(","))


def _copied(variable: Object) -> dict[str, Any]:
    return {key: variable[key] for key in ("name", "value", "valueFrom") if key in variable}


def _topologies(containers: Iterable[Object]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The topology files of containers that mount a volume with it, each with that mount."""
    for container in containers:
        path = _values(container).get(TOPOLOGY)
        if path is not None and path.startswith("/"):
            mount = _mount_of(PurePosixPath(path), items(container, "volumeMounts"))
            if mount is not None:
                yield path, mount


def _mount_of(path: PurePosixPath, mounts: Iterable[object]) -> dict[str, Any] | None:
    """The innermost mount that holds a path.

    None where its folder depends on the container's own variables, or has programs of the check's image.
    """
    holding = [one for one in map(mapping, mounts) if path.is_relative_to(str(one.get("mountPath")))]
    inner = max(holding, key=lambda one: len(str(one.get("mountPath"))), default=None)
    if inner is None or "subPathExpr" in inner or _covers_programs(str(inner.get("mountPath"))):
        return None
    return _read_only(inner)


def _covers_programs(mount: str) -> bool:
    place = PurePosixPath(normpath(mount))
    return any(place.is_relative_to(one) or PurePosixPath(one).is_relative_to(place) for one in PROGRAM_FOLDERS)


def _read_only(mount: Object) -> dict[str, Any]:
    return {**{key: mount[key] for key in ("name", "mountPath", "subPath") if key in mount}, "readOnly": True}


def _shared_memory(containers: Iterable[Object], volumes: Iterable[Object]) -> Iterator[dict[str, Any]]:
    """Mounts of an emptyDir at the folder of shared memory, which is 64 MiB without one, too little for NCCL."""
    empty = {one.get("name") for one in volumes if isinstance(one.get("emptyDir"), Mapping)}
    for container in containers:
        for mount in map(mapping, items(container, "volumeMounts")):
            if mount.get("mountPath") == SHARED_MEMORY and mount.get("name") in empty:
                yield {"name": mount["name"], "mountPath": SHARED_MEMORY}
