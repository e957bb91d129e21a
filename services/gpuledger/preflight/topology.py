"""Which topology file NCCL gets: the pod's own, else that of the node's instance type, else none. Pure."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpuledger.api.preflight import Variable
from gpuledger.preflight.errors import ConfigurationError
from gpuledger.preflight.settings import TopologySettings


class TopologyChoice(NamedTuple):
    """The file, None where NCCL finds the topology itself; and why it is this one."""

    file: str | None
    reason: str


def needs_instance_type(settings: TopologySettings) -> bool:
    """Whether the choice depends on the node's instance type."""
    return settings.own is None and bool(settings.files) and settings.folder is not None


def choose_topology(
    settings: TopologySettings, instance_type: str | None, is_file: Callable[[Path], bool]
) -> TopologyChoice:
    """The file for a node of an instance type; None: nobody can tell it.

    Raises:
        ConfigurationError: no file is mapped and there, and NCCL may not find the topology itself.
    """
    if settings.own is not None:
        return TopologyChoice(settings.own, "the pod brings it")
    name = (settings.files or {}).get(instance_type or "")
    path = None if name is None or settings.folder is None else settings.folder / name
    if path is not None and is_file(path):
        return TopologyChoice(str(path), f"it is mapped to the instance type {instance_type}")
    reason = f"{path} is not there" if path else f"no file is mapped to the instance type {instance_type or 'unknown'}"
    if not settings.fallback:
        raise ConfigurationError(
            Variable.TOPOLOGY_MAPPING,
            f"NCCL gets no topology file: {reason}. Map one in {Variable.TOPOLOGY_MAPPING} and put it into "
            f"{Variable.TOPOLOGY_FOLDER}, or set {Variable.TOPOLOGY_FALLBACK} to true.",
        )
    return TopologyChoice(None, reason)
