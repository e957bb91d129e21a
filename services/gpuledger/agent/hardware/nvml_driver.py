"""Follows the driver as it loads, unloads and returns: initialises NVML when it is needed, and releases it afterwards.

Upgrading a driver replaces its library too, so that the old library is unloaded as soon as the versions differ.
"""

import _ctypes
import importlib
from collections.abc import Iterable
from contextlib import suppress
from ctypes import CDLL
from types import ModuleType
from typing import Final, Protocol

from gpuledger.agent.hardware.errors import DriverMissingError
from gpuledger.agent.hardware.nvml_calls import Nvml, code_of, translated

SURVEYS_BETWEEN_TRIES: Final = 4
"""NVML is initialised again at every such survey while cards stay silent: it knows only cards that answered then."""


class Load(Protocol):
    """Loads the module `pynvml`, or its stand-in."""

    def __call__(self, *, fresh: bool) -> Nvml:
        """The module; `fresh`: with the driver's library read from disk again."""
        ...


def load_nvml(*, fresh: bool) -> Nvml:
    """Import `pynvml`, which loads the driver's library when it is initialised."""
    module = importlib.import_module("pynvml")
    return _reloaded(module) if fresh else module


def _reloaded(module: ModuleType) -> ModuleType:
    """Unload the library: the dynamic loader returns the loaded one for as long as anything holds it."""
    library = getattr(module, "nvmlLib", None)
    if isinstance(library, CDLL):
        _ctypes.dlclose(library._handle)  # noqa: SLF001 - ctypes has no other name for it
    return importlib.reload(module)


class Driver:
    """NVML, initialised or not, for one thread at a time; any thread may read `current`."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._nvml: Nvml | None = None
        self._outdated = False

    @property
    def current(self) -> Nvml:
        """NVML while it is initialised.

        Raises:
            DriverMissingError: it is not.
        """
        if self._nvml is None:
            raise DriverMissingError("No driver answers yet; the next survey tries again.")
        return self._nvml

    def open(self) -> Nvml:
        """NVML, initialised if need be.

        Raises:
            HardwareError: it cannot be initialised; DriverMissingError where there is no driver.
        """
        if self._nvml is None:
            self._nvml = self._initialised()
        return self._nvml

    def close(self) -> None:
        """Shut NVML down, which invalidates all handles."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _initialised(self) -> Nvml:
        nvml = self._load(fresh=self._outdated)
        self._outdated = False
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._outdated = code_of(error) == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
            raise translated(nvml, error, "Initialising NVML") from error
        return nvml


class SilentCards:
    """Decides when to initialise NVML again for the sake of cards that are bound to the driver but do not answer."""

    def __init__(self) -> None:
        self._cards: frozenset[str] = frozenset()
        self._surveys = 0

    def should_reinitialize(self, silent: Iterable[str]) -> bool:
        """Whether to initialise NVML now: at once after a change, then every few surveys."""
        cards = frozenset(silent)
        self._surveys = self._surveys + 1 if cards == self._cards else 0
        self._cards = cards
        return bool(cards) and self._surveys % SURVEYS_BETWEEN_TRIES == 0
