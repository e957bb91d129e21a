"""How the agent calls NVML: the meaning of its errors, values that a card may not support, and fields.

The library's own exceptions go no further than the modules `nvml*`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from gpuledger.agent.hardware.errors import (
    BusyError,
    CardLostError,
    DriverMissingError,
    HardwareError,
    HungError,
    UnsupportedError,
)

Nvml = Any
"""The module `pynvml`, which has no types, or its stand-in."""

Handle = Any
"""NVML's handle of a card, an instance or a set of events; valid until NVML is shut down."""

MEANINGS: Final[Mapping[str, type[HardwareError]]] = MappingProxyType(
    {
        "NVML_ERROR_UNINITIALIZED": DriverMissingError,
        "NVML_ERROR_DRIVER_NOT_LOADED": DriverMissingError,
        "NVML_ERROR_LIBRARY_NOT_FOUND": DriverMissingError,
        "NVML_ERROR_LIB_RM_VERSION_MISMATCH": DriverMissingError,
        "NVML_ERROR_GPU_IS_LOST": CardLostError,
        "NVML_ERROR_RESET_REQUIRED": CardLostError,
        "NVML_ERROR_GPU_NOT_FOUND": CardLostError,
        "NVML_ERROR_NOT_FOUND": CardLostError,
        "NVML_ERROR_IRQ_ISSUE": CardLostError,
        "NVML_ERROR_INSUFFICIENT_POWER": CardLostError,
        "NVML_ERROR_IN_USE": BusyError,
        "NVML_ERROR_INSUFFICIENT_RESOURCES": BusyError,
        "NVML_ERROR_NOT_SUPPORTED": UnsupportedError,
        "NVML_ERROR_INVALID_ARGUMENT": UnsupportedError,
        "NVML_ERROR_NO_PERMISSION": UnsupportedError,
        "NVML_ERROR_FUNCTION_NOT_FOUND": UnsupportedError,
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": UnsupportedError,
        "NVML_ERROR_DEPRECATED": UnsupportedError,
        "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED": UnsupportedError,
        "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED": UnsupportedError,
        "NVML_ERROR_TIMEOUT": HungError,
    }
)
"""The meaning of an error, by the name of its constant in nvml.h; any other is a HardwareError."""

ADVICE: Final[Mapping[type[HardwareError], str]] = MappingProxyType(
    {
        DriverMissingError: "Is NVIDIA's driver loaded, and its libnvidia-ml.so.1 of the same version?",
        CardLostError: "Look for its XIDs in the kernel's log; it may need a reset, or the node a restart.",
        BusyError: "Wait until nothing uses it.",
        UnsupportedError: "The card, the driver or the agent's rights do not allow it.",
        HungError: "Look for the driver's complaints in the kernel's log.",
        HardwareError: "Look for the driver's complaints in the kernel's log.",
    }
)
"""What to do about an error."""

BYTES_PER_MIB: Final = 1 << 20

UNSUPPORTED: Final = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
    "NVML_ERROR_NO_DATA",
    "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED",
)
"""Errors that mean that a card, or an older driver, does not support one value."""

UNAVAILABLE: Final = ("NVML_ERROR_NOT_READY", "NVML_ERROR_CORRUPTED_INFOROM")
"""Errors of a value that a card has and cannot give now."""


@contextmanager
def translating_errors(nvml: Nvml, what: str) -> Iterator[None]:
    """Raises NVML's errors as the agent's own; `what` begins their message.

    Raises:
        HardwareError: by `MEANINGS`.
    """
    try:
        yield
    except nvml.NVMLError as error:
        raise translated(nvml, error, what) from error
    except UnicodeDecodeError as error:  # a card that falls off the bus may answer nonsense
        raise HardwareError(f"{what} failed: NVML answered bytes that are no text.") from error


def _meaning_of(nvml: Nvml, error: Exception) -> type[HardwareError]:
    code = code_of(error)
    return next((ours for name, ours in MEANINGS.items() if getattr(nvml, name) == code), HardwareError)


def translated(nvml: Nvml, error: Exception, what: str) -> HardwareError:
    """The agent's error for one of NVML's."""
    meaning = _meaning_of(nvml, error)
    return meaning(f"{what} failed: {error} (NVML error {code_of(error)}). {ADVICE[meaning]}")


def optional(nvml: Nvml, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - pynvml has no types
    """The result of a call, or None where it is not supported or not available; raises NVML's other errors."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if _is_one_of(nvml, code_of(error), (*UNSUPPORTED, *UNAVAILABLE)):
            return None
        raise


class Description:
    """Values that a card can do without. `failure` is the error of the last query that failed, which may pass."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self.failure: Exception | None = None

    @property
    def complete(self) -> bool:
        """Whether no query failed; a value that is not supported is no failure."""
        return self.failure is None

    def get(self, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - pynvml has no types
        """A value; None where it cannot be had. Raises NVML's errors that concern the whole card, or the driver."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            if _is_one_of(self._nvml, code_of(error), UNSUPPORTED):
                return None
            if issubclass(_meaning_of(self._nvml, error), (DriverMissingError, CardLostError, HungError)):
                raise
            self.failure = error
        except UnicodeDecodeError as error:
            self.failure = error
        return None


def _is_one_of(nvml: Nvml, code: int | None, names: Iterable[str]) -> bool:
    return code in {getattr(nvml, name) for name in names}


def describing(nvml: Nvml, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - pynvml has no types
    """A single property that only describes; see `Description`."""
    return Description(nvml).get(call, *arguments)


def code_of(error: Exception) -> int | None:
    """The number of one of NVML's errors."""
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else None


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
"""The member of the union `nvmlValue_t` that holds a value of each type."""


def field_failure(nvml: Nvml, field: Any) -> Exception | None:  # noqa: ANN401 - pynvml has no types
    """The error of a single field; none where the card does not support it."""
    code: int = field.nvmlReturn
    if code == nvml.NVML_SUCCESS or _is_one_of(nvml, code, UNSUPPORTED):
        return None
    failure: Exception = nvml.NVMLError(code)
    return failure


def number_of(nvml: Nvml, field: Any) -> int | None:  # noqa: ANN401 - pynvml has no types
    """The whole number in a field; None where the card does not support it."""
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        return None
    for name, member in MEMBERS.items():
        if field.valueType == getattr(nvml, name):
            return int(getattr(field.value, member))
    return None
