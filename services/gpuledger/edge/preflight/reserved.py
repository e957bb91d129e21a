"""The names of containers that only checks have. Pure.

The name of a container proves to the node's agent that a check reports, so no other container may have it.
"""

from collections.abc import Iterator
from typing import Final

from gpuledger.api.preflight import CHECK_PREFIX
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.webhooks.serving.review import Object

REASON: Final = "ReservedContainerName"
REASON_IMAGE: Final = "CheckImageFixed"
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


def checks_with_another_image(new: Object, old: Object) -> tuple[str, ...]:
    """The checks of a pod that an update gives another image, which would run, and report, as the check."""
    before = {one.get("name"): one.get("image") for one in map(mapping, items(old, "spec", "initContainers"))}
    after = map(mapping, items(new, "spec", "initContainers"))
    found = (str(one.get("name")) for one in after if one.get("image") != before.get(one.get("name")))
    return tuple(name for name in found if name.startswith(CHECK_PREFIX))


def denial_of_images(names: tuple[str, ...]) -> str:
    """What to do about them."""
    return (
        f"An update may not change the images of {', '.join(names)}, which are preflight checks. Change the "
        "configuration of checks, and create the pod anew."
    )


def _names(pod: Object, replaced: frozenset[str]) -> Iterator[str]:
    for kind in ("containers", "initContainers", EPHEMERAL):
        for one in map(mapping, items(pod, "spec", kind)):
            name = str(one.get("name"))
            if name.startswith(CHECK_PREFIX) and not (kind == "initContainers" and name in replaced):
                yield name
