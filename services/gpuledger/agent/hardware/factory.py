"""Creates the hardware that the agent's settings name: the node's own cards, simulated ones, or a recording."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from gpuledger.agent.hardware.api import NicFacts, NodeHardware
from gpuledger.agent.hardware.nic_sysfs import read_nics
from gpuledger.runtime.settings import SettingsError

NVML: Final = "nvml"
SIMULATED: Final = "simulated:"
RECORDED: Final = "recorded:"

ReadNics = Callable[[], tuple[NicFacts, ...]]
"""Reads the network cards of a node, and may block."""


def open_hardware(text: str, node: str) -> NodeHardware:
    """The hardware that `nvml`, `simulated:SPEC` or `recorded:FILE` names; imports only the modules that it needs.

    Raises:
        SettingsError: there is no such hardware.
    """
    if text == NVML:
        from gpuledger.agent.hardware.nvml import NvmlHardware  # noqa: PLC0415

        return NvmlHardware()
    if text.startswith(SIMULATED):
        return _simulated(text.removeprefix(SIMULATED), node)
    if text.startswith(RECORDED) and text != RECORDED:
        return _recorded(Path(text.removeprefix(RECORDED)))
    raise SettingsError(f"--hardware: {text!r} is none of nvml, simulated:8xH100 and recorded:FILE.")


def open_nics(text: str) -> ReadNics:
    """What reads the node's network cards, by the same text; a recording has none.

    Raises:
        SettingsError: there is no such hardware.
    """
    if text == NVML:
        return read_nics
    if text.startswith(SIMULATED):
        return partial(_simulated_nics, text.removeprefix(SIMULATED))
    return tuple


def _simulated_nics(spec: str) -> tuple[NicFacts, ...]:
    from gpuledger.agent.hardware.simulated_models import count_nics, parse_cards  # noqa: PLC0415
    from gpuledger.agent.hardware.simulated_node import node_nics  # noqa: PLC0415

    return node_nics(count_nics(spec), len(parse_cards(spec)))


def _simulated(spec: str, node: str) -> NodeHardware:
    from gpuledger.agent.hardware.simulated import SimulatedHardware  # noqa: PLC0415
    from gpuledger.agent.hardware.simulated_models import HardwareSpecError  # noqa: PLC0415

    try:
        return SimulatedHardware(spec, node=node)
    except HardwareSpecError as error:
        raise SettingsError(f"--hardware: {error}") from error


def _recorded(path: Path) -> NodeHardware:
    from gpuledger.agent.hardware.recorded import RecordedHardware  # noqa: PLC0415
    from gpuledger.agent.hardware.recording import RecordingError, read_recording  # noqa: PLC0415

    try:
        return RecordedHardware(read_recording(path.read_bytes()))
    except OSError as error:
        raise SettingsError(f"--hardware: {path} cannot be read: {error.strerror}.") from error
    except RecordingError as error:
        raise SettingsError(f"--hardware: {path}: {error}") from error
