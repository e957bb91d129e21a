"""Which nodes can use a slice, a device or an allocation, as objects of `resource.k8s.io` say it. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuledger.watchers.reading import listed, mapping, text

_SELECTIONS: Final = (("matchExpressions", False), ("matchFields", True))


def reach_of(holder: Mapping[str, Any]) -> dict[str, Any]:
    """The reach that `nodeName`, `allNodes` and `nodeSelector` give; none of them is no node."""
    return {
        "node": text(holder.get("nodeName")),
        "all_nodes": holder.get("allNodes") is True,
        "terms": terms_of(mapping(holder, "nodeSelector")),
    }


def terms_of(selector: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The terms of a node selector, of which one has to fit."""
    return [list(_requirements(mapping(term))) for term in listed(selector, "nodeSelectorTerms")]


def _requirements(term: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for where, is_field in _SELECTIONS:
        for one in listed(term, where):
            key, operator = text(mapping(one).get("key")), text(mapping(one).get("operator"))
            if key and operator:
                values = [value for value in listed(mapping(one), "values") if isinstance(value, str)]
                yield {"key": key, "operator": operator, "values": values, "is_field": is_field}
