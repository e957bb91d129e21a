"""Finds the pod and the container of a process in the path of its cgroup. Pure.

Every runtime and both cgroup drivers put `pod<uid>` into the path of a pod: systemd's as a slice whose name ends so,
with `_` in place of `-`, cgroupfs' as a folder. A static pod's uid is a digest of 32 digits. Seen from a container, the
path may begin with `/..`, and the part above the pod may be missing. The first pod counts: what is below it belongs to
the pod, which may have made folders of any name there.

The container's id comes right behind the pod. containerd and CRI-O put their name before it, and systemd's driver
`.scope` behind it; where systemd runs containerd itself, colons separate them. No process leaves the group of its own
container for that of another one without rights over the node.
"""

import re
from typing import Final, NamedTuple

_POD: Final = re.compile(
    r"(?:/|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?=[/:]|$)", re.MULTILINE
)

_CONTAINER: Final = re.compile(r"[/:](?:[a-z]+(?:-[a-z]+)*[-:])?([0-9a-f]{64})(?:\.scope)?(?=[/:]|$)", re.MULTILINE)


class PodCgroup(NamedTuple):
    """The UID of a pod, and the id of a container of it; None: the path names no container."""

    uid: str
    container: str | None


def pod_of(cgroup: str) -> PodCgroup | None:
    """The pod in the text of `/proc/<pid>/cgroup`, and its container; None: the process belongs to no pod."""
    found = _POD.search(cgroup)
    if found is None:
        return None
    container = _CONTAINER.match(cgroup, found.end())
    return PodCgroup(found[1].replace("_", "-"), None if container is None else container[1])
