"""Runs the programs of ours that need PyTorch, in processes of their own, and reads the JSON that they print.

PyTorch is an extra. This process never imports it: a crash of CUDA or NCCL ends the worker alone.
"""

import json
import sys
from importlib.util import find_spec
from typing import Any, Final

TORCH: Final = "torch"
RESULT: Final = "GPULEDGER_RESULT "
"""Before the JSON of a result in a worker's output, on a line of its own."""

NO_TORCH: Final = (
    "PyTorch is not installed in this image, so that this check measures nothing. Install gpuledger[preflight]."
)


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return find_spec(TORCH) is not None


def module_command(module: str) -> tuple[str, ...]:
    """The command that runs a module with this Python."""
    return (sys.executable, "-m", module)


def results_in(text: str) -> list[dict[str, Any]]:
    """The results that workers printed, in order; lines that are none are left out."""
    lines = (line.partition(RESULT)[2] for line in text.splitlines() if RESULT in line)
    return [found for line in lines if isinstance(found := _json(line), dict)]


def _json(text: str) -> Any:  # noqa: ANN401 - any value of JSON
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return None


def _refuse(word: str) -> None:
    """Refuse `NaN` and `Infinity`: no comparison with a threshold would find them too low."""
    raise ValueError(word)
