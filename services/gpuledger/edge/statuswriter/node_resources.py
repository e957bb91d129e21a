"""The resources of a Node that the product keeps in its status: what is shared there in all. Pure.

A kubelet that starts sets extended resources to zero that it does not know, and takes them over with that. The writer
sets them again. Only resources under the domain of sharing are read and written: those that every sharing node has, and
those that the product has written itself.
"""

from collections.abc import Iterator
from typing import Any, Final

from gpuledger.api.kinds import FIELD_MANAGER
from gpuledger.api.sharing import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA, SharingNames
from gpuledger.domain.quantities import parse_quantity
from gpuledger.edge.statuswriter.objects import Document

ALWAYS_OURS: Final = (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA)
PLACES: Final = ("capacity", "allocatable")


def node_resources(obj: Document, names: SharingNames) -> Document:
    """What of the Node's status is ours, with whole numbers as text; empty where it has nothing of ours.

    Both places are there if one of them has something, as in `resources_of`.
    """
    status = obj.get("status") or {}
    ours = {names.resource(short) for short in ALWAYS_OURS} | set(_written(obj["metadata"], names))
    found = {
        place: {name: _whole(value) for name, value in (status.get(place) or {}).items() if name in ours}
        for place in PLACES
    }
    return found if any(found.values()) else {}


def resources_of(capacity: dict[str, int], allocatable: dict[str, int], names: SharingNames) -> Document:
    """The part of a Node's status that shows these totals, by the short names of their resources."""
    places = dict(zip(PLACES, (capacity, allocatable), strict=True))
    return {
        place: {names.resource(short): str(amount) for short, amount in totals.items()}
        for place, totals in places.items()
        if totals
    }


def _whole(value: object) -> str:
    """A quantity as a whole number, as `resources_of` writes it; any other text as it is: it is not what we wrote."""
    try:
        return str(parse_quantity(value).whole)
    except ValueError:
        return str(value)


def _written(metadata: Document, names: SharingNames) -> Iterator[str]:
    """The resources of our domain that we wrote, as the server keeps count of it."""
    for entry in metadata.get("managedFields") or ():
        if entry.get("manager") == FIELD_MANAGER and entry.get("subresource") == "status":
            status: dict[str, Any] = (entry.get("fieldsV1") or {}).get("f:status") or {}
            for place in PLACES:
                fields = (key.removeprefix("f:") for key in status.get(f"f:{place}") or ())
                yield from (name for name in fields if name.startswith(f"{names.domain}/"))
