"""Values that NVML gives by a field's number, each with an error and a type of its own."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gpuledger.agent.hardware.nvml_errors import Nvml

MEMBERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NVML_VALUE_TYPE_UNSIGNED_INT": "uiVal",
        "NVML_VALUE_TYPE_UNSIGNED_LONG": "ulVal",
        "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG": "ullVal",
        "NVML_VALUE_TYPE_SIGNED_LONG_LONG": "sllVal",
        "NVML_VALUE_TYPE_SIGNED_INT": "siVal",
        "NVML_VALUE_TYPE_UNSIGNED_SHORT": "usVal",
    }
)
"""Where a value of a type stands in the union `nvmlValue_t`."""


def number_of(nvml: Nvml, field: Any) -> int | None:  # noqa: ANN401 - pynvml has no types
    """The whole number that a field holds; None where the card does not tell it."""
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        return None
    for name, member in MEMBERS.items():
        if field.valueType == getattr(nvml, name):
            return int(getattr(field.value, member))
    return None
