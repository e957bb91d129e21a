"""Reads which nodes can use a slice, a device or an allocation of `resource.k8s.io`. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.fields import FieldReader, is_storable
from gpuledger.events.reach import REQUIREMENTS_MAX, TERMS_MAX

_SELECTIONS: Final = (("matchExpressions", False), ("matchFields", True))


def reach_of(holder: Mapping[str, Any], reader: FieldReader) -> dict[str, Any]:
    """The reach that `nodeName`, `allNodes` and `nodeSelector` give; none of them is no node."""
    return {
        "node": reader.text(holder, "nodeName"),
        "all_nodes": holder.get("allNodes") is True,
        "terms": terms_of(mapping(holder, "nodeSelector"), reader.within("nodeSelector")),
    }


def terms_of(selector: Mapping[str, Any], reader: FieldReader) -> list[list[dict[str, Any]]]:
    """The terms of a node selector, of which one has to match; one that is not fully understood is left out."""
    found = (_term(term, place) for term, place in reader.each(selector, "nodeSelectorTerms", TERMS_MAX))
    return [term for term in found if term is not None]


def _term(given: Mapping[str, Any], reader: FieldReader) -> list[dict[str, Any]] | None:
    term: list[dict[str, Any]] = []
    for where, is_field in _SELECTIONS:
        for one, place in reader.each(given, where, REQUIREMENTS_MAX + 1):
            required = _requirement(one, place, is_field=is_field)
            if required is None:
                return None
            term.append(required)
    if len(term) > REQUIREMENTS_MAX:
        reader.note(f"a node selector's term has more than {REQUIREMENTS_MAX} requirements, and is left out")
        return None
    return term


def _requirement(given: Mapping[str, Any], reader: FieldReader, *, is_field: bool) -> dict[str, Any] | None:
    names = reader.required(given, "key", "operator")
    values = reader.listed(given, "values", REQUIREMENTS_MAX + 1)
    if names is None:
        return None
    if len(values) > REQUIREMENTS_MAX or not all(isinstance(value, str) and is_storable(value) for value in values):
        reader.reject("values", values)
        return None
    return {**names, "values": list(values), "is_field": is_field}
