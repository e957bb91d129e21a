"""Finds the pod of a process in the path of its cgroup. Pure.

Every runtime and both cgroup drivers put `pod<uid>` into the path of a pod: systemd's as a slice whose name ends so,
with `_` in place of `-`, cgroupfs' as a folder. A static pod's uid is a digest of 32 digits. Seen from a container, the
path may begin with `/..`, and the part above the pod may be missing. The first pod counts: what is below it belongs to
the pod, which may have made folders of any name there.
"""

import re
from typing import Final

_POD: Final = re.compile(
    r"(?:/|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?=[/:]|$)", re.MULTILINE
)


def pod_uid(cgroup: str) -> str | None:
    """The UID of the pod in the text of `/proc/<pid>/cgroup`; None: the process belongs to none."""
    found = _POD.search(cgroup)
    return None if found is None else found[1].replace("_", "-")
