"""Which shared devices a pod has, as its DeviceAllocations say: for drains of single cards. Pure.

The annotation is written before the pod is bound, and stays as it is, so it says which cards the pod has where no agent
has reported its containers yet, or a runtime proxy gave it the cards.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.sharing.annotation import read_allocation
from gpuledger.edge.kube.objects import items, mapping

_UNCLEAR: Final = None


def held_shares(pod: Mapping[str, Any], names: SharingNames) -> frozenset[str] | None:
    """The ids of the shared devices of a pod; empty where it has none, None where the pod does not say which."""
    text = mapping(pod, "metadata", "annotations").get(names.allocated)
    if text is None:
        return _UNCLEAR if requests_shares(pod, names) else frozenset()
    try:
        allocation = read_allocation(str(text), names)
    except ValueError:
        return _UNCLEAR
    ids = [one.id for devices in allocation.values() for one in devices]
    return _UNCLEAR if None in ids else frozenset(filter(None, ids))


def requests_shares(pod: Mapping[str, Any], names: SharingNames) -> bool:
    """Whether a container asks for devices under the domain of sharing."""
    spec = mapping(pod, "spec")
    containers = (*items(spec, "containers"), *items(spec, "initContainers"))
    prefix = f"{names.domain}/"
    return any(
        str(name).startswith(prefix)
        for one in containers
        for part in ("limits", "requests")
        for name in mapping(one, "resources", part)
    )
