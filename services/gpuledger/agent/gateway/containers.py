"""Finds the name of a container by the kubelet's links to logs, `<pod>_<namespace>_<container>-<id>.log`. Pure.

The kubelet makes the link right after it has started the container, and cuts what is longer than a file's name may be.
"""

from collections.abc import Iterable
from typing import Final

from gpuledger.agent.gateway.decide import PodName

SUFFIX: Final = ".log"

FILE_NAME_MAX: Final = 255

ID_LENGTH: Final = 64
ID_LENGTH_MIN: Final = 16
"""How much of an id has to be left in a name that was cut, so that no other container's begins so."""


def container_name(links: Iterable[str], pod: PodName, container_id: str) -> str | None:
    """The name of a pod's container; None: no link has it."""
    prefix = f"{pod.name}_{pod.namespace}_"
    names = (one[len(prefix) : -len(SUFFIX)] for one in links if one.startswith(prefix) and one.endswith(SUFFIX))
    found = (_without_id(name, container_id, len(prefix)) for name in names)
    return next((name for name in found if name), None)


def _without_id(name: str, container_id: str, prefix_length: int) -> str | None:
    """The name before the id, which ends early where the whole is as long as a file's name may be."""
    if name.endswith(f"-{container_id}"):
        return name.removesuffix(f"-{container_id}")
    if prefix_length + len(name) + len(SUFFIX) < FILE_NAME_MAX:
        return None
    cuts = (f"-{container_id[:length]}" for length in range(ID_LENGTH - 1, ID_LENGTH_MIN - 1, -1))
    return next((name.removesuffix(cut) for cut in cuts if name.endswith(cut)), None)
