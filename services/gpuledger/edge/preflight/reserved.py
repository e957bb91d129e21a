"""The names of containers that only checks have. Pure.

The name of a container proves to the node's agent that a check reports, so no other container may have it.
"""

from collections.abc import Iterator
from typing import Final

from gpuledger.api.preflight import CHECK_PREFIX
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.webhooks.serving.review import Object

REASON: Final = "ReservedContainerName"
EPHEMERAL: Final = "ephemeralContainers"


def names_of_checks(pod: Object, replaced: frozenset[str]) -> tuple[str, ...]:
    """The names with the prefix of checks that a pod may not have; init containers in `replaced` become ours."""
    return tuple(dict.fromkeys(_names(pod, replaced)))


def denial(names: tuple[str, ...]) -> str:
    """What to do about them."""
    return (
        f"The containers {', '.join(names)} have names of preflight checks: in this namespace only those may begin "
        f"with {CHECK_PREFIX}. Give them other names."
    )


def _names(pod: Object, replaced: frozenset[str]) -> Iterator[str]:
    for kind in ("containers", "initContainers", EPHEMERAL):
        for one in map(mapping, items(pod, "spec", kind)):
            name = str(one.get("name"))
            if name.startswith(CHECK_PREFIX) and not (kind == "initContainers" and name in replaced):
                yield name
