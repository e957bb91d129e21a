"""In which mode pods of a namespace leave a node that is drained. Pure."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from gpuledger.api.machine_config import SYSTEM_NAMESPACE
from gpuledger.events.drain_mode import DrainMode
from gpuledger.events.maintenance import Drain

SYSTEM_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease", SYSTEM_NAMESPACE)
"""Namespaces whose pods no drain touches: a node that is drained for its configuration needs its agent."""


def mode_of(drain: Drain, namespace: str) -> DrainMode:
    """The mode of a namespace: that of the first pattern that it matches."""
    matching = (one.mode for one in drain.namespaces if fnmatchcase(namespace, one.namespaces))
    return next(matching, drain.mode)


def is_untouched(namespace: str, untouched: Sequence[str] = ()) -> bool:
    """Whether pods of a namespace stay in any case; `untouched` are patterns beside those of the system."""
    return any(fnmatchcase(namespace, pattern) for pattern in (*SYSTEM_NAMESPACES, *untouched))


def summary(drain: Drain) -> str:
    """A drain in a line, such as `Immediate, team-*: AllowCompletion, timeout 3600s`."""
    modes = ", ".join([drain.mode, *(f"{one.namespaces}: {one.mode}" for one in drain.namespaces)])
    return f"{modes}, timeout {drain.timeout_s}s"
