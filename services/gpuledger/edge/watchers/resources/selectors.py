"""Reads the selectors of pools: labels of nodes and of GPUDevices, and facts about devices. Pure.

Every part that is not understood is a problem. Callers have to check for problems and must not use a selector that has
any: without one of its parts a selector selects too much.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.pool_spec import SELECTOR_OPERATORS
from gpuledger.edge.watchers.fields import FieldReader, is_storable, text
from gpuledger.events.node import LABELS_MAX
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.events.pool import LISTED_MAX
from gpuledger.events.reach import REQUIREMENTS_MAX

_PARTS: Final = ("matchLabels", "matchExpressions")
_NEVER: Final = {"key": "-", "operator": "In", "values": []}
_LISTS: Final = {
    "inventoryIDs": "inventory_ids",
    "products": "products",
    "pciVendors": "pci_vendors",
    "pciDevices": "pci_devices",
    "migProfiles": "mig_profiles",
}


def labels_selected(holder: Mapping[str, Any], key: str, reader: FieldReader) -> dict[str, Any]:
    """The label selector under a key; an empty one selects everything."""
    given, place = reader.nested(holder, key, _PARTS)
    return {
        "labels": {
            name: _label_value(value, one) for name, value, one in place.entries(given, "matchLabels", LABELS_MAX)
        },
        "requirements": [
            _requirement(one, where) for one, where in place.each(given, "matchExpressions", REQUIREMENTS_MAX)
        ],
    }


def devices_selected(holder: Mapping[str, Any], key: str, reader: FieldReader) -> dict[str, Any]:
    """The filter of devices under a key; an empty one selects everything."""
    given, place = reader.nested(holder, key, (*_LISTS, "migCapable"))
    lists = {name: _texts(given, listed, place, LISTED_MAX) for listed, name in _LISTS.items()}
    return lists | {"mig_capable": place.boolean(given, "migCapable")}


def selects_by_something(devices: Mapping[str, Any]) -> bool:
    """Whether any part of a filter of devices is given."""
    return devices["mig_capable"] is not None or any(devices[name] for name in _LISTS.values())


def _label_value(value: object, reader: FieldReader) -> str:
    if isinstance(value, str) and len(value) <= NAME_LENGTH_MAX and is_storable(value):
        return value
    reader.reject("value", value)
    return ""


def _requirement(given: Mapping[str, Any], reader: FieldReader) -> dict[str, Any]:
    names = reader.required(given, "key", "operator")
    if names is None:
        return _NEVER
    values = _texts(given, "values", reader, REQUIREMENTS_MAX, may_be_empty=True)
    if names["operator"] not in SELECTOR_OPERATORS:
        reader.reject("operator", names["operator"])
    elif SELECTOR_OPERATORS[names["operator"]] is not bool(values):
        reader.reject("values", given.get("values"))
    return names | {"values": values}


def _texts(
    given: Mapping[str, Any], key: str, reader: FieldReader, count_max: int, *, may_be_empty: bool = False
) -> list[str]:
    found: list[str] = []
    for one in reader.listed(given, key, count_max):
        if text(one) or (may_be_empty and one == ""):
            found.append(one)
        else:
            reader.reject(key, one)
    return found
