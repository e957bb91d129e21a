"""Which index DCGM's host engine gives a card: `dcgmi diag -i` takes these, not the numbers in a container. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from gpuledger.domain.preflight.dcgm_errors import refuse
from gpuledger.domain.preflight.errors import DcgmError
from gpuledger.domain.preflight.text import cleaned

_INDEX: Final = re.compile(r"^\s*\|\s*([0-9]{1,6})\s*\|")
_DEVICE: Final = re.compile(r"\|\s*Device UUID:\s*(GPU-[0-9A-Za-z-]{1,60})")
_HEADER: Final = re.compile(r"^\s*\|\s*[A-Za-z]")
_FOUND: Final = re.compile(r"(?m)^\s*([0-9]{1,6}) GPUs? found")


def indices(text: str) -> Mapping[str, int]:
    """The index of each card by its UUID, from `dcgmi discovery -l`; empty where the engine has none.

    Raises:
        HostengineError: dcgmi cannot reach the host engine.
        DcgmError: it reports another error, or the output is no list of cards.
    """
    clean = cleaned(text)
    found: dict[str, int] = {}
    index: int | None = None
    for line in clean.splitlines():
        if _HEADER.match(line) is not None:
            index = None
        elif (row := _INDEX.match(line)) is not None:
            index = int(row[1])
        if index is not None and (device := _DEVICE.search(line)) is not None:
            found.setdefault(device[1], index)
    if not found:
        _refuse_unless_empty(clean)
    return found


def _refuse_unless_empty(text: str) -> None:
    refuse(text)
    count = _FOUND.search(text)
    if count is None:
        raise DcgmError("dcgmi discovery -l lists no cards; run it by hand against this host engine")
    if int(count[1]):
        raise DcgmError(f"dcgmi discovery -l finds {count[1]} cards but names no UUID of any")
